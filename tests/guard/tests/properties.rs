//! At least 100,000 random pairs of world and decision per run.
//!
//! A failure prints the seed, the shrunk bytes and the case. `BINDERY_SEED=… cargo test -p
//! bindery-guard-tests` runs the same trials again, `BINDERY_TRIALS=…` more of them.

use std::collections::BTreeSet;

use bindery_core::guard::Guarantee;
use bindery_guard_tests::trial::{self, Ending};
use proptest::collection::vec;
use proptest::prelude::any;

/// Pairs of world and decision in a run.
const TRIALS: u32 = 120_000;

#[test]
fn the_guard_allows_the_engine_s_decisions_and_no_harm() {
    let bytes = vec(any::<u8>(), 0..320);
    let endings = bindery_kit::check_all(&bytes, ("BINDERY_TRIALS", TRIALS), |bytes| trial::run(bytes));
    assert_adversarial(&endings);
}

/// Each kind of ending is common, and decisions break each guarantee except the one on sizes (G8).
fn assert_adversarial(endings: &[Ending]) {
    let count = |is_kind: &dyn Fn(&Ending) -> bool| endings.iter().filter(|ending| is_kind(ending)).count();
    for (name, count) in [
        ("the engine's, allowed", count(&|ending| *ending == Ending::EngineAllowed)),
        ("harmless", count(&|ending| *ending == Ending::Harmless)),
        ("stopped", count(&|ending| matches!(ending, Ending::Stopped(_)))),
    ] {
        eprintln!("{name}: {count} of {}", endings.len());
        assert!(count > endings.len() / 20, "{count} of {} decisions are {name}", endings.len());
    }
    let breaches = endings.iter().filter_map(|ending| match ending {
        Ending::Stopped(breach) => *breach,
        _ => None,
    });
    let broken: BTreeSet<Guarantee> = breaches.map(|breach| breach.guarantee()).collect();
    use Guarantee::{G1, G2, G3, G4, G5, G6, G7, G9};
    for guarantee in [G1, G2, G3, G4, G5, G6, G7, G9] {
        assert!(broken.contains(&guarantee) || endings.len() < 10_000, "no decision broke {guarantee:?}");
    }
}

#[test]
fn a_trial_depends_on_its_bytes_alone() {
    for number in 0..200_u64 {
        let bytes = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().repeat(40);
        assert_eq!(trial::run(&bytes), trial::run(&bytes));
    }
}
