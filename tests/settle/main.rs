//! Settling breaks no law: over random worlds of up to four volumes and four claims, as odd as users make
//! them, the binder's loop runs with the default engine until nothing is written any more, and every write on
//! the way is held against G1 to G5 and G9 of the design (`law`).
//!
//! What the door of admission denies at the beginning of a calm world, as a creation or as an update, does
//! not bind in it, nor what it says to wait, and what it is silent about does (`door`).
//!
//! A settled world stays settled, a binder that starts anew finds nothing to do, and no claim waits for a
//! volume that it may have. So no wake-up is missed, whatever changes and also where the Lease is lost while
//! volumes are handed from claim to claim: nothing but watches, subscriptions and timers drives the loop.
//!
//! A failure prints the seed and the world, shrunk. `BINDERY_SEED=… cargo test -p bindery-tests --test
//! settle` runs the same worlds again, `BINDERY_WORLDS=…` other numbers of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "seeds are printed")]

mod door;
mod genes;
mod law;
mod others;
mod plugin;
mod server;
mod trial;
mod world;

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};

use proptest::prelude::Strategy;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::genes::Genes;
use crate::trial::Story;

/// Worlds of each kind in a run.
const WORLDS: u32 = 100_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a whole number"))
}

fn runner(worlds: u32) -> (u64, TestRunner) {
    let seed = number("BINDERY_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases: worlds, failure_persistence: None, ..Config::default() };
    (seed, TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)))
}

/// Lets that many worlds settle and answers what happened in all of them.
fn all_settle(worlds: impl Strategy<Value = Genes>) -> Vec<Story> {
    let count = number("BINDERY_WORLDS").map_or(WORLDS, |n| u32::try_from(n).expect("a 32-bit number"));
    let (seed, mut runner) = runner(count);
    println!("BINDERY_SEED={seed}");
    let stories = RefCell::new(Vec::new());
    let result = runner.run(&worlds, |genes| {
        let story = trial::run(&genes).map_err(TestCaseError::fail)?;
        stories.borrow_mut().push(story);
        Ok(())
    });
    if let Err(error) = result {
        panic!("BINDERY_SEED={seed}\n{error}");
    }
    stories.into_inner()
}

/// Something happened in the worlds: claims were bound, and volumes reclaimed, in at least so many of a
/// hundred.
fn assert_eventful(stories: &[Story]) {
    let share = |happened: fn(&Story) -> bool| {
        stories.iter().filter(|story| happened(story)).count() * 100 / stories.len()
    };
    let (bound, reclaimed) = (share(|story| story.bound > 0), share(|story| story.reclaimed > 0));
    let refused = share(|story| story.refusals > 0);
    println!("of 100 worlds {bound} bound, {reclaimed} reclaimed, {refused} refused something");
    assert!(bound >= 20 && reclaimed >= 5, "{bound} and {reclaimed} of 100");
}

#[test]
fn calm_worlds_settle() {
    let stories = all_settle(genes::calm());
    assert_eventful(&stories);
    // Worlds are odd, so few of them have a claim that nothing is to be said of and that names a volume.
    for (at, what, least) in [
        (0, "denied something, or said that it waits", 100),
        (1, "said nothing of a claim with volumeName", 5),
        (2, "said nothing of a claim that is marked as bound, but is not", 5),
        (3, "denied an update that breaks a pair", 5),
    ] {
        let share = stories.iter().filter(|story| story.foretold[at] > 0).count() * 1_000 / stories.len();
        println!("in {share} of 1,000 worlds the door would have {what}");
        assert!(share >= least, "{what}: {share} of 1,000");
    }
}

#[test]
fn worlds_settle_whatever_others_do_meanwhile() {
    assert_eventful(&all_settle(genes::rough()));
}

#[test]
fn a_world_depends_on_its_bytes_alone() {
    let (_, mut runner) = runner(0);
    for _ in 0..500 {
        let genes = genes::rough().new_tree(&mut runner).expect("any bytes make a world").current();
        assert_eq!(trial::run(&genes), trial::run(&genes), "{genes:?}");
    }
}
