//! Random worlds settle without breaking a law.
//!
//! A world has up to four volumes and four claims, as odd as users make them. The binder's loop runs on it
//! with the default engine until nothing is written any more. Every write is checked against the guarantees
//! G1 to G5 and G9 of ARCHITECTURE.md (`law`).
//!
//! At the beginning of a calm world every object is reviewed as admission does (`reviews`). A pair that a
//! review denies or says to wait must not bind, and a claim without findings must.
//!
//! A settled world stays settled, a binder that starts anew finds nothing to do, and no claim waits for a
//! volume that it may have. Only watches, subscriptions and timers drive the loop, so no wake-up is missed,
//! also when the Lease is lost while volumes are offered to one claim after the other.
//!
//! A failure prints the seed and the shrunk world. `BINDERY_SEED=… cargo test -p bindery-tests --test settle`
//! runs the same worlds again, `BINDERY_WORLDS=…` another number of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "shares of worlds are printed")]

mod bytes;
mod law;
mod others;
mod plugin;
mod reviews;
mod trial;
mod world;

use bindery_kit::{check_all, seeded_runner};
use proptest::prelude::Strategy;
use proptest::strategy::ValueTree as _;

use crate::bytes::WorldBytes;
use crate::trial::Outcome;

/// Worlds of each kind in a run, and the variable that sets another number.
const WORLDS: (&str, u32) = ("BINDERY_WORLDS", 100_000);

fn all_settle(worlds: &impl Strategy<Value = WorldBytes>) -> Vec<Outcome> {
    check_all(worlds, WORLDS, trial::run)
}

/// The share of outcomes, in a thousand, that satisfy a condition.
fn share(outcomes: &[Outcome], holds: impl Fn(&Outcome) -> bool) -> usize {
    outcomes.iter().filter(|outcome| holds(outcome)).count() * 1_000 / outcomes.len()
}

fn assert_eventful(outcomes: &[Outcome]) {
    let bound = share(outcomes, |outcome| outcome.bound > 0);
    let reclaimed = share(outcomes, |outcome| outcome.reclaimed > 0);
    let refused = share(outcomes, |outcome| outcome.refusals > 0);
    println!("of 1,000 worlds {bound} bound, {reclaimed} reclaimed, {refused} refused something");
    assert!(bound >= 200 && reclaimed >= 50, "{bound} and {reclaimed} of 1,000");
}

#[test]
fn calm_worlds_settle() {
    let outcomes = all_settle(&bytes::calm());
    assert_eventful(&outcomes);
    // Worlds are odd: few have a claim that names a volume and has no findings.
    for (at, what, least) in [
        (0, "a pair that is denied or told to wait", 100),
        (1, "a claim with volumeName and no findings", 5),
        (2, "a claim marked as bound that is not, and has no findings", 5),
        (3, "a denied update that breaks a pair", 5),
    ] {
        let share = share(&outcomes, |outcome| outcome.predicted[at] > 0);
        println!("{share} of 1,000 worlds have {what}");
        assert!(share >= least, "{what}: {share} of 1,000");
    }
}

#[test]
fn rough_worlds_settle() {
    assert_eventful(&all_settle(&bytes::rough()));
}

#[test]
fn a_world_depends_on_its_bytes_alone() {
    let (_, mut runner) = seeded_runner(0);
    for _ in 0..500 {
        let bytes = bytes::rough().new_tree(&mut runner).expect("any bytes make a world").current();
        assert_eq!(trial::run(&bytes), trial::run(&bytes), "{bytes:?}");
    }
}
