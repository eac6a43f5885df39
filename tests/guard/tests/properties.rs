//! At least 100,000 random pairs of world and decision per run.
//!
//! A failure prints the seed, the shrunk bytes and the case. `BINDERY_SEED=… cargo test -p
//! bindery-guard-tests` runs the same trials again, `BINDERY_TRIALS=…` more of them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

use bindery_core::guard::Guarantee;
use bindery_guard_tests::trial::{self, Ending};
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// Pairs of world and decision in a run.
const TRIALS: u32 = 120_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a whole number"))
}

#[test]
fn the_guard_allows_the_engine_s_decisions_and_no_harm() {
    let seed = number("BINDERY_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    let trials = number("BINDERY_TRIALS").map_or(TRIALS, |n| u32::try_from(n).expect("a 32-bit number"));
    println!("BINDERY_SEED={seed}");
    let config = Config { cases: trials, failure_persistence: None, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let endings = RefCell::new(Vec::new());
    let result = runner.run(&vec(any::<u8>(), 0..320), |bytes| {
        let ending = trial::run(&bytes).map_err(TestCaseError::fail)?;
        endings.borrow_mut().push(ending);
        Ok(())
    });
    if let Err(error) = result {
        panic!("BINDERY_SEED={seed}\n{error}");
    }
    assert_adversarial(&endings.into_inner());
}

/// Each kind of ending is common, and each guarantee but the one on sizes is broken at times.
fn assert_adversarial(endings: &[Ending]) {
    let is_stopped = |ending: &Ending| matches!(ending, Ending::Stopped(_));
    let kinds: [(&str, &dyn Fn(&Ending) -> bool); 3] = [
        ("allowed of the engine's", &|ending| *ending == Ending::EngineAllowed),
        ("harmless", &|ending| *ending == Ending::Harmless),
        ("stopped", &is_stopped),
    ];
    for (name, is_kind) in kinds {
        let count = endings.iter().filter(|ending| is_kind(ending)).count();
        println!("{name}: {count} of {}", endings.len());
        assert!(count > endings.len() / 20, "{count} of {} decisions are {name}", endings.len());
    }
    let broken: BTreeSet<Guarantee> = endings
        .iter()
        .filter_map(|ending| match ending {
            Ending::Stopped(breach) => breach.map(|breach| breach.guarantee()),
            _ => None,
        })
        .collect();
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
