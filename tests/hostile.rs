//! Hostile and broken engines: each is refused or stopped with a typed error, and the next decision of the
//! default engine on the same host is what it was before.
//!
//! Every file of `components/` has one fault, and is listed here with its outcome. The files are core modules
//! that are spliced into `skeleton.wat` and made components of the contract, or whole components.
//! `hostile/binder.rs` lets them decide in a binder, `hostile/limits.rs` tests each limit and one beyond;
//! `crates/cli/tests/hostile.rs` tests the messages of the command.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "hostile/binder.rs"]
mod binder;
mod component;
mod faulty;
#[path = "hostile/limits.rs"]
mod limits;

use std::collections::BTreeSet;
use std::sync::Arc;

use bindery_core::{
    Answer, Claim, ClaimKey, Cluster, Decision, DecisionLimits, Engine, EngineFault, Lookup, MatchVerdict,
    Migration, OperationState, Page, PluginMatch, Question, QuestionBudget, ReclaimVerdict, Request, Stop,
    Subject,
};
use bindery_host::{ComponentEngine, Host, Limits, LoadError, Options, Stats};
use faulty::built;

type Fault = fn(&EngineFault) -> bool;
type Refusal = fn(&LoadError) -> bool;

/// Engines that load, and how their first decision ends.
const STOPPED: [(&str, Fault); 26] = [
    ("loops", |fault| matches!(fault, EngineFault::Exhausted("out of fuel"))),
    ("loops-at-start", |fault| matches!(fault, EngineFault::Exhausted("out of fuel"))),
    ("fills-memory", |fault| matches!(fault, EngineFault::Exhausted("out of fuel"))),
    ("recurses", |fault| trapped(fault, "call stack exhausted")),
    ("allocates", |fault| trapped(fault, "bytes of memory; the limit is 16777216")),
    ("grows-a-table", |fault| trapped(fault, "elements; the limit is 10000")),
    ("traps", |fault| trapped(fault, "unreachable")),
    ("reads-out-of-bounds", |fault| trapped(fault, "out of bounds memory access")),
    ("answers-a-megabyte", is_bad_answer),
    ("answers-many-steps", |fault| {
        *fault == EngineFault::BadAnswer("it has 65 steps; the limit is 64".into())
    }),
    ("answers-many-tallies", |fault| {
        *fault == EngineFault::BadAnswer("it has 17 tallies; the limit is 13".into())
    }),
    ("answers-many-findings", |fault| {
        *fault == EngineFault::BadAnswer("it has 65 findings; the limit is 64".into())
    }),
    ("answers-an-endless-list", is_bad_answer),
    ("answers-a-wild-text", is_bad_answer),
    ("answers-nowhere", is_bad_answer),
    ("answers-unaligned", is_bad_answer),
    ("answers-an-unknown-case", is_bad_answer),
    ("answers-no-utf-8", is_bad_answer),
    ("asks-for-ever", |fault| too_many(fault, "questions", 1_024)),
    ("searches-for-ever", |fault| too_many(fault, "searches of the index", 128)),
    ("asks-long-questions", |fault| too_many(fault, "bytes of questions", 1 << 20)),
    ("asks-with-many-labels", |fault| too_many(fault, "label requirements and values of one query", 1_024)),
    ("asks-for-an-unknown-handle", |fault| nonsense(fault, "handle")),
    ("asks-for-an-unknown-access-mode", |fault| nonsense(fault, "access mode")),
    ("asks-for-a-bad-quantity", |fault| nonsense(fault, "nanos")),
    ("asks-for-an-empty-page", |fault| nonsense(fault, "page of no rows")),
];

/// Components that are not loaded, and why.
const REFUSED: [(&str, Refusal); 7] = [
    ("imports-wasi", |error| {
        matches!(error, LoadError::ForeignImports(names)
            if *names == ["wasi:cli/environment@0.2.0", "wasi:clocks/wall-clock@0.2.0"])
    }),
    (
        "exports-another-world",
        |error| matches!(error, LoadError::NoExport { found, .. } if *found == ["example:other/run@1.0.0"]),
    ),
    ("exports-a-later-version", |error| {
        matches!(error, LoadError::UnsupportedVersion { found, .. }
                if found == "bindery:policy/decide@0.9.0")
    }),
    ("exports-no-functions", |error| matches!(error, LoadError::Mismatch(_))),
    (
        "exports-another-type",
        |error| matches!(error, LoadError::Mismatch(what) if what.contains("sync-claim has another type")),
    ),
    ("is-a-core-module", |error| matches!(error, LoadError::CoreModule)),
    ("needs-simd", |error| matches!(error, LoadError::Invalid(_))),
];

fn trapped(fault: &EngineFault, why: &str) -> bool {
    matches!(fault, EngineFault::Trapped(what) if what.contains(why))
}

fn is_bad_answer(fault: &EngineFault) -> bool {
    matches!(fault, EngineFault::BadAnswer(_))
}

fn too_many(fault: &EngineFault, what: &'static str, max: u64) -> bool {
    *fault == EngineFault::Stopped(Stop::TooMany { what, max })
}

fn nonsense(fault: &EngineFault, about: &str) -> bool {
    matches!(fault, EngineFault::Stopped(Stop::Nonsense(what)) if what.contains(about))
}

/// A claim in an empty cluster, where it has no volume to bind to.
fn request() -> Request {
    Request { now: 1_800_000_000, subject: Subject::SyncClaim(Arc::new(claim())) }
}

/// The claim of [`request`].
fn claim() -> Claim {
    Claim { class: Some("".into()), ..bindery_kit::claim(ClaimKey::new("default", "data")) }
}

/// An empty cluster. Questions that a decision about this claim does not ask need a live read.
struct Nothing;

impl Cluster for Nothing {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        Ok(match question {
            Question::Claim(..) => Answer::Claim(Lookup::Absent),
            Question::Volume(..) => Answer::Volume(Lookup::Absent),
            Question::Node(_) => Answer::Node(Lookup::Absent),
            Question::Class(_) => Answer::Class(Lookup::Absent),
            Question::Pods(_) => Answer::Pods(Ok(Vec::new())),
            Question::DefaultClasses => Answer::DefaultClasses(Ok(Vec::new())),
            Question::Plugin(_) => Answer::Plugin(None),
            Question::PluginForVolume(_) => Answer::PluginMatch(PluginMatch::None),
            Question::Migration(_) => Answer::Migration(Migration::Off),
            Question::DynamicProvisioning => Answer::DynamicProvisioning(true),
            Question::Operation(..) => Answer::Operation(OperationState::Idle),
            Question::AccessSets(_) => Answer::AccessSets(Vec::new()),
            Question::Candidates { .. } => Answer::Page(Page::default()),
            Question::ReservedFor { .. } => Answer::Reserved(Vec::new()),
            Question::Tallies(_) => Answer::Tallies(Vec::new()),
            Question::Verdict(_) => Answer::Verdict(MatchVerdict::Allowed),
            Question::Reclaim(_) => Answer::Reclaim(ReclaimVerdict::default()),
            Question::Identify(_) | Question::Describe(_) => return Err(Stop::Nonsense("an unknown handle")),
            question @ Question::PluginReady(..) => return Err(Stop::LiveRead(question)),
        })
    }
}

/// [`Nothing`] within the limits of one decision, as a session of the store answers.
struct Limited(QuestionBudget);

impl Limited {
    fn new() -> Self {
        Self(QuestionBudget::new(DecisionLimits::default()))
    }
}

impl Cluster for Limited {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        self.0.take_question(&question)?;
        Nothing.ask(question)
    }
}

/// A host with the default engine, and the engine's decision.
struct Bench {
    host: Host,
    default_engine: ComponentEngine,
    expected: (Result<Decision, EngineFault>, Stats),
}

impl Bench {
    fn new() -> Self {
        let host = Host::new(&Options { concurrency: 2, ..Options::default() }).unwrap();
        let default_engine = host.load(&component::default_engine(), Limits::default()).unwrap();
        let expected = default_engine.decide_with_stats(&request(), &mut Limited::new());
        assert!(expected.0.is_ok(), "{expected:?}");
        Self { host, default_engine, expected }
    }

    /// The default engine decides as before, to the unit of fuel.
    fn check(&self, after: &str) {
        let now = self.default_engine.decide_with_stats(&request(), &mut Limited::new());
        assert_eq!(now, self.expected, "the next decision after {after}");
    }
}

#[test]
fn every_hostile_engine_is_stopped_and_the_next_decision_is_unaffected() {
    let bench = Bench::new();
    for (name, expected) in STOPPED {
        let engine =
            bench.host.load(&built(name), Limits::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (first, stats) = engine.decide_with_stats(&request(), &mut Limited::new());
        let fault = first.expect_err(name);
        assert!(expected(&fault), "{name}: {fault:?}");
        assert!(stats.fuel <= Limits::default().fuel, "{name}: {stats:?}");
        bench.check(name);
        // The first decision leaves no state: the second ends in the same way, at the same instruction.
        assert_eq!(engine.decide_with_stats(&request(), &mut Limited::new()), (Err(fault), stats), "{name}");
    }
}

#[test]
fn every_broken_component_is_refused_with_the_reason() {
    let bench = Bench::new();
    let refusal = |name: &str, bytes: &[u8]| match bench.host.load(bytes, Limits::default()) {
        Ok(_) => panic!("{name} was loaded"),
        Err(error) => {
            bench.check(name);
            error
        }
    };
    for (name, expected) in REFUSED {
        let error = refusal(name, &built(name));
        assert!(expected(&error), "{name}: {error:?}");
    }
    let whole = component::default_engine();
    for (name, bytes, expected) in [
        ("text", &b"apiVersion: v1\n"[..], (|e| matches!(e, LoadError::NotWasm)) as Refusal),
        ("nothing", b"", |e| matches!(e, LoadError::NotWasm)),
        ("truncated", &whole[..whole.len() / 2], |e| matches!(e, LoadError::Truncated { .. })),
    ] {
        let error = refusal(name, bytes);
        assert!(expected(&error), "{name}: {error:?}");
    }
    let missing = bench.host.load_file("/nonexistent/engine.wasm", Limits::default());
    assert!(matches!(missing, Err(LoadError::Read { .. })));
}

#[test]
fn every_component_of_the_folder_is_listed() {
    let files: BTreeSet<String> = std::fs::read_dir(faulty::folder())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let listed = STOPPED.iter().map(|(name, _)| *name).chain(REFUSED.iter().map(|(name, _)| *name));
    let harmless = ["skeleton", "well-behaved"];
    let known: BTreeSet<String> = listed.chain(harmless).map(str::to_owned).collect();
    assert_eq!(files, known);
}

#[test]
fn the_skeleton_itself_decides() {
    let bench = Bench::new();
    let engine = bench.host.load(&built("well-behaved"), Limits::default()).unwrap();
    assert_eq!(engine.decide(&request(), &mut Limited::new()), Ok(Decision::done()));
}

#[test]
fn recursion_on_a_small_stack_ends_the_decision_and_not_the_process() {
    let bench = Arc::new(Bench::new());
    let engine = bench.host.load(&built("recurses"), Limits::default()).unwrap();
    let thread = std::thread::Builder::new().stack_size(128 << 10);
    let handle = thread.spawn(move || engine.decide(&request(), &mut Limited::new())).unwrap();
    let fault = handle.join().unwrap().expect_err("it recurses");
    assert!(trapped(&fault, "call stack exhausted"), "{fault:?}");
    bench.check("recursion on a small stack");
}

#[test]
fn the_caller_gets_the_stop_of_the_cluster() {
    struct Stopping;
    impl Cluster for Stopping {
        fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
            Err(Stop::LiveRead(question))
        }
    }
    let bench = Bench::new();
    let engine = bench.host.load(&built("asks-for-ever"), Limits::default()).unwrap();
    let (decision, stats) = engine.decide_with_stats(&request(), &mut Stopping);
    assert_eq!(decision, Err(EngineFault::Stopped(Stop::LiveRead(Question::DynamicProvisioning))));
    assert_eq!(stats.questions, 1);
}

#[test]
fn decisions_beyond_the_size_of_the_pool_wait_for_each_other() {
    let bench = Bench::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..50).for_each(|_| bench.check("many at a time")));
        }
    });
}
