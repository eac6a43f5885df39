//! Limits that no engine of the folder exceeds on its own: time, rows, and the size of a file.

use std::fs::File;
use std::time::Duration;

use bindery_core::{Answer, Cluster, Decision, Engine, EngineFault, Handle, Page, Question, Slot, Stop};
use bindery_host::{Limits, LoadError};

use super::faulty::built;
use super::{Bench, Nothing, request, too_many};

/// Largest component that a host compiles, in bytes; the sentence says the same.
const COMPONENT_BYTES_MAX: u64 = 64 << 20;

/// Answers every search by a page of so many rows.
struct Rows(u32);

impl Cluster for Rows {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        let Question::Candidates { .. } = question else { return Nothing.ask(question) };
        let rows = self.0 as usize;
        Ok(Answer::Page(Page {
            handles: (0..self.0).map(Handle).collect(),
            whole: vec![1 << 30; rows],
            nanos: vec![0; rows],
            slots: vec![Slot::Free; rows],
            more: false,
        }))
    }
}

/// With fuel that never runs out, the clock ends it.
#[test]
fn an_engine_with_boundless_fuel_is_stopped_at_its_deadline() {
    let bench = Bench::new();
    let limits = Limits { fuel: u64::MAX, time: Duration::from_millis(5), ..Limits::default() };
    for name in ["loops", "loops-at-start"] {
        let engine = bench.host.load(&built(name), limits.clone()).unwrap();
        let fault = engine.decide(&request(), &mut Nothing).expect_err(name);
        assert_eq!(fault, EngineFault::Exhausted("past its deadline"), "{name}");
        bench.check(name);
    }
}

#[test]
fn an_engine_is_told_as_many_rows_as_its_limit_and_not_one_more() {
    let bench = Bench::new();
    let limits = Limits { rows: 64, ..Limits::default() };
    let engine = bench.host.load(&built("asks-for-a-page"), limits).unwrap();
    let (decision, stats) = engine.decide_with_stats(&request(), &mut Rows(64));
    assert_eq!((decision, stats.rows), (Ok(Decision::done()), 64));
    let fault = engine.decide(&request(), &mut Rows(65)).expect_err("65 rows are one too many");
    assert!(too_many(&fault, "rows", 64), "{fault:?}");
    bench.check("too many rows");
}

/// The counts of a decision, each at its limit: one more is in the table of engines that are stopped.
#[test]
fn a_decision_as_large_as_its_limits_is_one() {
    let bench = Bench::new();
    let limits = Limits { tallies: 17, findings: 65, ..Limits::default() };
    for name in ["answers-many-tallies", "answers-many-findings"] {
        let engine = bench.host.load(&built(name), limits.clone()).unwrap();
        let decision = engine.decide(&request(), &mut Nothing).expect(name);
        assert_eq!(
            decision.tallies.len() + decision.findings.len(),
            if name.ends_with("tallies") { 17 } else { 65 }
        );
    }
}

#[test]
fn a_file_over_the_limit_is_refused_without_being_compiled() {
    let bench = Bench::new();
    let refusal = |file: &str| match bench.host.load_file(file, Limits::default()) {
        Err(error @ LoadError::TooLarge { .. }) => error.to_string(),
        other => panic!("{file}: {:?}", other.err()),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.wasm");
    File::create(&path).unwrap().set_len(COMPONENT_BYTES_MAX + 1).unwrap();
    assert_eq!(
        refusal(path.to_str().unwrap()),
        "the engine has more than 67108864 bytes, which is the limit"
    );
    // One that tells no size and never ends.
    assert_eq!(refusal("/dev/zero"), "the engine has more than 67108864 bytes, which is the limit");
    let large = vec![0; usize::try_from(COMPONENT_BYTES_MAX + 1).unwrap()];
    assert!(matches!(bench.host.load(&large, Limits::default()), Err(LoadError::TooLarge { .. })));
    // At the limit the content is looked at.
    File::create(&path).unwrap().set_len(COMPONENT_BYTES_MAX).unwrap();
    let looked_at = bench.host.load_file(&path, Limits::default());
    assert!(matches!(looked_at, Err(LoadError::NotWasm)));
}
