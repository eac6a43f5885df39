//! Random tests that can be repeated.

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// The number in an environment variable; `None` if it is not set.
///
/// # Panics
///
/// It is set to something else.
pub fn number_from_env(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a whole number")))
}

/// A runner of that many cases, and its seed: `BINDERY_SEED` if it is set.
pub fn seeded_runner(cases: u32) -> (u64, TestRunner) {
    let seed = number_from_env("BINDERY_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    (seed, TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)))
}

/// Checks random values and returns the results of the check. The environment variable `count` changes their
/// number. The seed is printed.
///
/// # Panics
///
/// A check fails: the message has the seed, the shrunk value and the error.
pub fn check_all<S: Strategy, T>(
    values: &S,
    (count, default): (&str, u32),
    check: impl Fn(&S::Value) -> Result<T, String>,
) -> Vec<T> {
    let cases = number_from_env(count).map_or(default, |n| u32::try_from(n).expect("a 32-bit number"));
    let (seed, mut runner) = seeded_runner(cases);
    eprintln!("BINDERY_SEED={seed}");
    let results = RefCell::new(Vec::new());
    let checked = runner.run(values, |value| {
        results.borrow_mut().push(check(&value).map_err(TestCaseError::fail)?);
        Ok(())
    });
    if let Err(error) = checked {
        panic!("BINDERY_SEED={seed}\n{error}");
    }
    results.into_inner()
}

/// Choices drawn from bytes, so that property tests shrink and fuzzers mutate bytes. After the last byte,
/// each choice is the first one, which is the usual one.
pub struct Choices<'a>(std::slice::Iter<'a, u8>);

impl<'a> Choices<'a> {
    /// Draws from these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.iter())
    }

    /// A number below `n`, which is at most 256.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % n
    }

    /// True in this many of a hundred cases.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) >= 100 - percent
    }

    /// One of the items.
    pub fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    /// The first item in three of four cases, else any of them.
    pub fn usually<T: Clone>(&mut self, items: &[T]) -> T {
        match self.below(256) {
            byte @ 192.. => items[byte % items.len()].clone(),
            _ => items[0].clone(),
        }
    }
}
