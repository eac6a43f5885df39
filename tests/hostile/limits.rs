//! Limits that no engine of the folder exceeds on its own: time, the size of a file, and the largest
//! questions.

use std::fs::File;
use std::time::Duration;

use bindery_core::{
    AccessMode, AccessModes, Answer, Claim, Cluster, Engine, EngineFault, Handle, Page, Question, Recorder,
    Request, Requirement, Selector, SelectorOperator, Slot, Stop, Subject, VolumeTarget,
};
use bindery_engine::DefaultEngine;
use bindery_host::{Limits, LoadError};

use super::faulty::built;
use super::{Bench, Nothing, claim, request};

/// Largest component that a host compiles, in bytes; the error message says the same.
const COMPONENT_BYTES_MAX: u64 = 64 << 20;

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
        "the component has more than 67108864 bytes, which is the limit"
    );
    // A file that reports no size and never ends.
    assert_eq!(refusal("/dev/zero"), "the component has more than 67108864 bytes, which is the limit");
    let large = vec![0; usize::try_from(COMPONENT_BYTES_MAX + 1).unwrap()];
    assert!(matches!(bench.host.load(&large, Limits::default()), Err(LoadError::TooLarge { .. })));
    // At the limit the content is checked.
    File::create(&path).unwrap().set_len(COMPONENT_BYTES_MAX).unwrap();
    let looked_at = bench.host.load_file(&path, Limits::default());
    assert!(matches!(looked_at, Err(LoadError::NotWasm)));
}

/// A cluster with volumes of every set of access modes that a claim may take; none fits the claim. If the 256
/// decisions in flight have picked some, the engine asks for three pages of each set, and two of the last;
/// otherwise for one page, and for the reasons why none fits.
struct Taken(bool);

impl Cluster for Taken {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        use AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce};
        let set = |modes: &[AccessMode]| modes.iter().collect::<AccessModes>();
        Ok(match question {
            Question::AccessSets(_) => Answer::AccessSets(vec![
                set(&[ReadWriteOnce]),
                set(&[ReadWriteOnce, ReadOnlyMany]),
                set(&[ReadWriteOnce, ReadWriteMany]),
                set(&[ReadWriteOnce, ReadOnlyMany, ReadWriteMany]),
            ]),
            Question::Candidates { query, after, limit } => {
                let taken = if query.access_set.len() < 3 { 2 } else { 1 };
                let first = after.map_or(0, |after| after.0 + 1);
                let rows = if self.0 && first < 8 * taken { limit.min(8) } else { 0 };
                Answer::Page(Page {
                    handles: (first..first + rows).map(Handle).collect(),
                    whole: vec![1 << 30; rows as usize],
                    nanos: vec![0; rows as usize],
                    slots: vec![Slot::InFlight; rows as usize],
                    more: rows > 0,
                })
            }
            Question::Identify(Handle(number)) => {
                let (uid, version) = ("uid".into(), "1".into());
                Answer::Identity(VolumeTarget { name: format!("v{number}").into(), uid, version })
            }
            question => return Nothing.ask(question),
        })
    }
}

/// The questions about a claim with any readable selector are within the limits of an engine.
#[test]
fn the_largest_selectors_are_decided_in_the_component_as_natively() {
    let bench = Bench::new();
    let requirement = |key: String, values: Vec<String>| Requirement {
        key: key.as_str().into(),
        operator: SelectorOperator::In,
        values: values.iter().map(|value| value.as_str().into()).collect(),
    };
    let values = |count: usize| (0..count).map(|at| format!("{at:063}")).collect::<Vec<_>>();
    let many_values = vec![requirement("zone".into(), values(Selector::LABELS_MAX - 1))];
    let long_keys: Vec<_> = (0..172).map(|at| requirement(format!("{at:0317}"), values(1))).collect();
    let short_keys: Vec<_> =
        (0..Selector::LABELS_MAX / 2).map(|at| requirement(format!("k{at}"), values(1))).collect();
    // So many keys leave fuel for fewer questions: while many volumes that have all of them are in flight,
    // the claim is retried.
    for (requirements, in_flight, searches) in [
        (&many_values, true, 11),
        (&many_values, false, 5),
        (&long_keys, true, 11),
        (&long_keys, false, 5),
        (&short_keys, false, 5),
    ] {
        let size = (Selector::labels(requirements), Selector::bytes(requirements));
        assert!(size.0 <= Selector::LABELS_MAX && size.1 <= Selector::BYTES_MAX, "{size:?}");
        let claim = Claim { selector: Some(Selector::Requirements(requirements.clone())), ..claim() };
        let request = Request { now: 0, subject: Subject::SyncClaim(claim.into()) };
        let mut cluster = Taken(in_flight);
        let mut recorder = Recorder::new(&mut cluster);
        let expected = DefaultEngine.decide(&request, &mut recorder).unwrap();
        let asked = recorder.into_exchanges().into_iter().map(|exchange| exchange.question);
        let asked =
            asked.filter(|question| matches!(question, Question::Candidates { .. } | Question::Tallies(_)));
        assert_eq!(asked.count(), searches);
        let (decision, stats) = bench.default_engine.decide_with_stats(&request, &mut Taken(in_flight));
        assert_eq!(decision, Ok(expected), "{size:?}: {stats:?}");
    }
}
