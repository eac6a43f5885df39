//! Hostile and broken matchers: each is refused when it is loaded or stopped when it is called, with a
//! sentence that says why, and the next call of another matcher is not affected.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::Duration;

use bindery_core::{Quantity, Text};
use bindery_host::{ComponentMatcher, ComponentPolicy, Limits, LoadError, Options, PolicyHost, Stats};
use bindery_kit::module::{
    AMONG_LENGTH, COLUMNS_LENGTH, FACTS_LENGTH, Module, NAME_LENGTH, REASONS_LENGTH, SCHEMA_LENGTH, SCORES,
    SPREADS,
};
use bindery_policy::{Candidates, ClaimView, Matcher, Narrowing, PolicyFault, Verdicts};

/// More rows than one call has.
const ROWS: usize = 1_300;

/// A host with a matcher that is right, and what it answers.
struct Bench {
    host: PolicyHost,
    right: ComponentMatcher,
    stats: Stats,
}

impl Bench {
    fn new() -> Self {
        let host = PolicyHost::new(&Options { concurrency: 2, ..Options::default() }).unwrap();
        let right = load(&host, &Module::default(), Limits::policy()).unwrap();
        let (_, stats) = right.judge_with_stats("{}", &claim(), &candidates(ROWS));
        Self { host, right, stats }
    }

    fn load(&self, module: &Module) -> Result<ComponentMatcher, LoadError> {
        load(&self.host, module, Limits::policy())
    }

    /// The matcher loads, and fails to judge two rows: twice in the same way, and within its fuel.
    fn faults(&self, module: &Module, why: &str) {
        let matcher = self.load(module).unwrap();
        let first = matcher.judge_with_stats("{}", &claim(), &candidates(2));
        assert_eq!(first.0.as_ref().unwrap_err().to_string(), why);
        assert!(first.1.fuel <= Limits::policy().fuel, "{why}");
        assert_eq!(matcher.judge_with_stats("{}", &claim(), &candidates(2)), first, "{why}, again");
        self.check(why);
    }

    /// The matcher that is right judges every row by its zone, with the same fuel every time.
    fn check(&self, after: &str) {
        let expected: Vec<u32> = (0..ROWS).map(|row| u32::from(zone(row).starts_with('b'))).collect();
        let before = self.right.fuel();
        let (verdicts, stats) = self.right.judge_with_stats("{}", &claim(), &candidates(ROWS));
        assert_eq!(verdicts, Ok(Verdicts { reasons: expected, scores: Vec::new() }), "after {after}");
        assert_eq!(self.right.fuel() - before, stats.fuel, "after {after}");
        assert_eq!(stats, self.stats, "after {after}");
    }
}

fn load(host: &PolicyHost, module: &Module, limits: Limits) -> Result<ComponentMatcher, LoadError> {
    match host.load(&module.component(), limits)? {
        ComponentPolicy::Matcher(matcher) => Ok(matcher),
        ComponentPolicy::Reclaimer(_) => panic!("it is a reclaimer"),
    }
}

fn claim() -> ClaimView {
    ClaimView { request: Quantity::bytes(1), facts: Vec::new() }
}

/// The zone of a row: each has its own, and every third begins with `b`.
fn zone(row: usize) -> String {
    format!("{}{row}", ["a", "b", "c"][row % 3])
}

fn candidates(rows: usize) -> Candidates {
    Candidates {
        whole: vec![1 << 30; rows],
        nanos: vec![0; rows],
        texts: (0..rows).map(|row| Text::from(zone(row))).collect(),
        columns: vec![(1..).take(rows).collect()],
        spread: Vec::new(),
    }
}

/// Metadata with one word changed.
fn declares(word: usize, value: u32) -> Module {
    let mut module = Module { pages: 200, ..Module::default() };
    module.metadata[word] = value;
    module
}

/// A matcher that spreads among claims with this number of equal facts.
fn spreads(among: u32) -> Module {
    let mut module = declares(SPREADS, 1);
    module.metadata[AMONG_LENGTH] = among;
    module
}

fn judges(before: &'static str, after: &'static str) -> Module {
    Module { before, after, ..Module::default() }
}

#[test]
fn metadata_that_break_a_rule_are_refused_by_field_and_limit() {
    let bench = Bench::new();
    for (module, why) in [
        (declares(NAME_LENGTH, 0), "its name is \"\"; use at most 63 lower case letters, digits and hyphens"),
        (declares(NAME_LENGTH, 13), "its name is \"hostile\\01.0.0\""),
        (declares(FACTS_LENGTH, 65), "it has 65 facts of claims; the limit is 64"),
        (declares(COLUMNS_LENGTH, 17), "it has 17 columns; the limit is 16"),
        (spreads(65), "its spread has 65 facts among siblings; the limit is 64"),
        (declares(REASONS_LENGTH, 2), "it has two reasons of name \"far\""),
        (declares(SCHEMA_LENGTH, 3), "its settings-schema: "),
        (declares(SCHEMA_LENGTH, 65_537), "it has 65537 bytes in its settings-schema; the limit is 65536"),
        (declares(SCHEMA_LENGTH, 10 << 20), "it hands over more than 262144 bytes, which is the limit"),
        (declares(SCHEMA_LENGTH, 1 << 30), "string pointer/length out of bounds"),
        (
            Module { fields: "(func $start (loop (br 0))) (start $start)", ..Module::default() },
            "it used its 16000000 units of fuel",
        ),
    ] {
        let error = bench.load(&module).err().expect(why).to_string();
        assert!(error.starts_with("the metadata of the policy is wrong: "), "{error}");
        assert!(error.contains(why), "{error}; not {why}");
        bench.check(why);
    }
}

#[test]
fn a_component_of_another_world_or_too_large_is_refused() {
    let bench = Bench::new();
    let engines = Path::new(env!("BINDERY_CHECKOUT")).join("tests/components");
    let file = |name: &str| wat::parse_file(engines.join(name)).unwrap();
    let later = r#"(component (instance $none) (export "bindery:policy/match@0.9.0" (instance $none)))"#;
    let empty = r#"(component (instance $none) (export "bindery:policy/match@0.2.0" (instance $none)))"#;
    let instances =
        format!("(component (core module $none) {})", "(core instance (instantiate $none))".repeat(65));
    let memory = "(component (core module $much (memory 1025)) (core instance (instantiate $much)))";
    for (bytes, why) in [
        (file("imports-wasi.wat"), "imports wasi:cli/environment@0.2.0, wasi:clocks/wall-clock@0.2.0"),
        (file("exports-another-world.wat"), "does not export bindery:policy/match but example:other/run"),
        (wat::parse_str(later).unwrap(), "bindery:policy/match@0.9.0; this host serves bindery:policy 0.2"),
        (wat::parse_str(empty).unwrap(), "does not fit the contract"),
        (wat::parse_str(instances).unwrap(), "contains 65 core module instances"),
        (wat::parse_str(memory).unwrap(), "67174400"),
        (vec![0; (32 << 20) + 1], "has more than 33554432 bytes, which is the limit"),
    ] {
        let error = bench.host.load(&bytes, Limits::policy()).err().expect(why).to_string();
        assert!(error.contains(why), "{error}; not {why}");
        bench.check(why);
    }
}

#[test]
fn a_narrowing_without_meaning_is_a_fault() {
    let bench = Bench::new();
    let requires =
        |requirement| Module { narrowing: [1, 0, 0, 0], requirement, pages: 2, ..Module::default() };
    let bounds = |nanos, reason| Module { narrowing: [0, 1, nanos, reason], ..Module::default() };
    for (module, why) in [
        (requires([1, 0, 0, 4, 1]), "it requires of column 1, from 0; 1 are declared"),
        (requires([0, 0, 1, 4, 1]), "it gives reason 1, from 0; 1 are declared"),
        (requires([0, 2, 0, 4, 1]), "its requirement of column 0 takes no values"),
        (requires([0, 0, 0, 4_097, 1]), "or one of more than 4096 bytes"),
        (requires([0, 4, 0, 4, 1]), "unexpected discriminant"),
        (bounds(0, 1), "it gives reason 1, from 0; 1 are declared"),
        (bounds(1_000_000_000, 0), "10^9 or more nanos"),
    ] {
        let matcher = bench.load(&module).unwrap();
        match matcher.narrow("{}", &claim()) {
            Err(PolicyFault::BadAnswer(found)) => assert!(found.contains(why), "{found}; not {why}"),
            other => panic!("{other:?}; not {why}"),
        }
        bench.check(why);
    }
    assert_eq!(bench.right.narrow("{}", &claim()), Ok(Narrowing { judge: true, ..Narrowing::default() }));
    assert_eq!(bench.right.check("{}"), Ok(Ok(())));
}

#[test]
fn a_matcher_that_exceeds_a_limit_is_stopped_with_the_limit() {
    let bench = Bench::new();
    let recursion = Module { fields: "(func $deeper (call $deeper))", ..judges("(call $deeper)", "") };
    let table = "(drop (table.grow (ref.null func) (i32.const 20000)))";
    let table = Module { fields: "(table 1 funcref)", ..judges(table, "") };
    let verdicts = Module { pages: 200, ..judges("", "(i32.store (i32.const 0x704) (i32.const 1000000))") };
    for (module, why) in [
        (
            judges("(loop (br 0))", ""),
            "it was stopped: it used its 16000000 units of fuel; it must do less for each of 512 rows",
        ),
        (recursion, "it trapped: wasm trap: call stack exhausted"),
        (
            judges("(drop (memory.grow (i32.const 1024)))", ""),
            "it was stopped: it asked for 67174400 bytes of memory; the limit is 67108864; it must keep less \
             in memory",
        ),
        (
            table,
            "it was stopped: it asked for a table of 20001 elements; the limit is 20000; it must keep less \
             in memory",
        ),
        (verdicts, "its answer is invalid: it hands over more than 262144 bytes, which is the limit"),
        (judges("unreachable", ""), "it trapped: wasm trap: wasm `unreachable` instruction executed"),
    ] {
        bench.faults(&module, why);
    }
}

#[test]
fn verdicts_that_break_the_contract_are_a_fault() {
    let bench = Bench::new();
    let two_scores = "(i32.store (i32.const 0x708) (i32.const 0x2000))
                      (i32.store (i32.const 0x70c) (i32.const 2))";
    let high_score = "(i32.store (i32.const 0x708) (i32.const 0x2000))
                      (i32.store (i32.const 0x70c) (i32.const 2))
                      (i32.store (i32.const 0x2000) (i32.const 101))";
    let scores = |after| Module { after, ..declares(SCORES, 1) };
    for (module, why) in [
        (judges("(local.set $rows (i32.const 1))", ""), "it has 1 reasons for 2 rows; it must have 2"),
        (judges("(local.set $rows (i32.const 3))", ""), "it has 3 reasons for 2 rows; it must have 2"),
        (judges("", "(i32.store (i32.const 0x1000) (i32.const 2))"), "row 0 has reason 2 of the 1 declared"),
        (scores(""), "it has 0 scores for 2 rows; it must have 2"),
        (judges("", two_scores), "it has 2 scores for 2 rows; it must have 0"),
        (scores(high_score), "the score of row 0 is 101; the highest is 100"),
    ] {
        bench.faults(&module, &format!("its answer is invalid: {why}"));
    }
}

#[test]
fn boundless_fuel_ends_at_the_deadline() {
    let bench = Bench::new();
    let limits = Limits { fuel: u64::MAX, time: Duration::from_millis(5), ..Limits::policy() };
    let matcher = load(&bench.host, &judges("(loop (br 0))", ""), limits).unwrap();
    let fault = matcher.judge("{}", &claim(), &candidates(1)).unwrap_err();
    assert!(fault.to_string().contains("it took more than 5 ms"), "{fault}");
    bench.check("the deadline");
}

/// A global counts calls; the tenth would trap.
#[test]
fn a_matcher_cannot_count_its_calls() {
    let bench = Bench::new();
    let counts = "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
                  (if (i32.ge_u (global.get $calls) (i32.const 10)) (then unreachable))";
    let module = Module { fields: "(global $calls (mut i32) (i32.const 0))", ..judges(counts, "") };
    let matcher = bench.load(&module).unwrap();
    let first = matcher.judge_with_stats("{}", &claim(), &candidates(2));
    assert_eq!(first.0, Ok(Verdicts { reasons: vec![0, 1], scores: Vec::new() }));
    for _ in 0..20 {
        assert_eq!(matcher.judge_with_stats("{}", &claim(), &candidates(2)), first);
    }
}

/// The memory that texts take in one call does not grow with the rows of other calls.
#[test]
fn each_call_of_a_large_batch_is_shown_its_own_texts() {
    let bench = Bench::new();
    let rows = 100 * 512;
    let (_, one) = bench.right.judge_with_stats("{}", &claim(), &candidates(512));
    let (verdicts, all) = bench.right.judge_with_stats("{}", &claim(), &candidates(rows));
    assert_eq!(verdicts.unwrap().reasons.len(), rows);
    assert!(all.fuel < 101 * one.fuel, "{all:?}, {one:?}");
    assert_eq!(all.memory_bytes, one.memory_bytes);
}
