//! The properties, over at least 100,000 pairs of world and decision a run.
//!
//! A failure prints the seed, the shrunk bytes and the case. `BINDERY_SEED=… cargo test -p
//! bindery-guard-tests` runs the same trials again, `BINDERY_TRIALS=…` more of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use bindery_core::guard::{Breach, Guarantee};
use bindery_guard_tests::trial::{self, Verdict};
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// Pairs of world and decision in a run.
const TRIALS: u32 = 120_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a whole number"))
}

#[test]
fn what_the_guard_allows_is_harmless_and_what_upstream_does_is_allowed() {
    let seed = number("BINDERY_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    let trials = number("BINDERY_TRIALS").map_or(TRIALS, |n| u32::try_from(n).expect("a 32-bit number"));
    println!("BINDERY_SEED={seed}");
    let config = Config { cases: trials, failure_persistence: None, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let tally = RefCell::new(Tally::default());
    let result = runner.run(&vec(any::<u8>(), 0..320), |bytes| match trial::run(&bytes) {
        Ok(verdict) => {
            tally.borrow_mut().count(verdict);
            Ok(())
        }
        Err(report) => Err(TestCaseError::fail(report)),
    });
    if let Err(error) = result {
        panic!("BINDERY_SEED={seed}\n{error}");
    }
    tally.borrow().assert_adversarial();
}

/// Counts verdicts, to show that the trials mean something.
#[derive(Default)]
struct Tally {
    nothing: u32,
    upstream: u32,
    refused: u32,
    harmless: u32,
    stopped: u32,
    breaches: BTreeMap<Breach, u32>,
}

impl Tally {
    fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Nothing => self.nothing += 1,
            Verdict::Upstream => self.upstream += 1,
            Verdict::UpstreamRefused => self.refused += 1,
            Verdict::Harmless => self.harmless += 1,
            Verdict::Stopped(breach) => {
                self.stopped += 1;
                if let Some(breach) = breach {
                    *self.breaches.entry(breach).or_default() += 1;
                }
            }
        }
    }

    /// Each kind of verdict is common, and each guarantee but the one on sizes is broken at times.
    fn assert_adversarial(&self) {
        eprintln!(
            "nothing {} upstream {} refused {} harmless {} stopped {} {:?}",
            self.nothing, self.upstream, self.refused, self.harmless, self.stopped, self.breaches
        );
        let total = self.nothing + self.upstream + self.refused + self.harmless + self.stopped;
        for count in [self.upstream, self.harmless, self.stopped] {
            assert!(count > total / 20, "verdicts are lopsided: {count} of {total}");
        }
        use Guarantee::{G1, G2, G3, G4, G5, G6, G7, G9};
        for guarantee in [G1, G2, G3, G4, G5, G6, G7, G9] {
            let broken = self.breaches.keys().any(|breach| breach.guarantee() == guarantee);
            assert!(broken || total < 10_000, "no decision broke {guarantee:?}");
        }
    }
}
