//! Random worlds settle without breaking a law.
//!
//! A world has up to four volumes and four claims, as odd as users make them. The binder's loop runs on it
//! with the default engine until nothing is written any more. Every write is checked against the guarantees
//! G1 to G5 and G9 to G11 of ARCHITECTURE.md (`law`).
//!
//! At the beginning of a calm world every object is reviewed as admission does (`reviews`). A pair that a
//! review denies, also because a policy rejects the volume, or says to wait must not bind, and a claim
//! without findings must.
//!
//! Some worlds have policies (`policies`): native matchers that reject by labels, capacity, parameters of
//! classes or volumes of siblings, score, fail at times or are missing, and reclaimers with every answer.
//! Labels of volumes, claims and namespaces change, and parameters of classes.
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
mod policies;
mod reviews;
mod trial;
mod waiting;
mod world;

use bindery_kit::{check_all, seeded_runner};
use proptest::prelude::Strategy;
use proptest::strategy::ValueTree as _;

use crate::bytes::{CALM, POLICED, ROUGH, UNPOLICED, WorldBytes, worlds};
use crate::trial::Outcome;

/// The variable that sets another number of worlds of each kind in a run.
const WORLDS: &str = "BINDERY_WORLDS";
/// Worlds without policies.
const UNPOLICED_WORLDS: (&str, u32) = (WORLDS, 100_000);
/// Worlds with policies.
const POLICED_WORLDS: (&str, u32) = (WORLDS, 40_000);

fn all_settle(worlds: &impl Strategy<Value = WorldBytes>, count: (&str, u32)) -> Vec<Outcome> {
    check_all(worlds, count, trial::run)
}

/// The share of outcomes, in a thousand, that satisfy a condition.
fn share(outcomes: &[Outcome], holds: impl Fn(&Outcome) -> bool) -> usize {
    outcomes.iter().filter(|outcome| holds(outcome)).count() * 1_000 / outcomes.len()
}

/// Panics unless these many outcomes of a thousand bound and reclaimed volumes.
fn assert_eventful(outcomes: &[Outcome], [least_bound, least_reclaimed]: [usize; 2]) {
    let bound = share(outcomes, |outcome| outcome.bound > 0);
    let reclaimed = share(outcomes, |outcome| outcome.reclaimed > 0);
    let refused = share(outcomes, |outcome| outcome.refusals > 0);
    println!("of 1,000 worlds {bound} bound, {reclaimed} reclaimed, {refused} refused something");
    assert!(bound >= least_bound && reclaimed >= least_reclaimed, "{bound} and {reclaimed} of 1,000");
}

/// Panics unless reviews have foretold each of these in so many of a thousand outcomes.
fn assert_foretold(outcomes: &[Outcome], least: [usize; 5]) {
    const FORETOLD: [&str; 5] = [
        "a pair that is denied or told to wait",
        "a claim with volumeName and no findings",
        "a claim marked as bound that is not, and has no findings",
        "a denied update that breaks a pair",
        "a claim that names a free volume which a policy rejects",
    ];
    for (at, (what, least)) in FORETOLD.into_iter().zip(least).enumerate() {
        let share = share(outcomes, |outcome| outcome.predicted[at] > 0);
        println!("{share} of 1,000 worlds have {what}");
        assert!(share >= least, "{what}: {share} of 1,000");
    }
}

/// Panics unless policies have told often enough in these outcomes.
fn assert_policed(outcomes: &[Outcome]) {
    assert_eventful(outcomes, [150, 40]);
    let held_back = share(outcomes, |outcome| outcome.held_back > 0);
    let crowded_out = share(outcomes, |outcome| outcome.crowded_out > 0);
    let policies_set = share(outcomes, |outcome| outcome.policies_set > 0);
    println!(
        "in {held_back} of 1,000 worlds a claim is held back, in {crowded_out} by siblings alone, in \
         {policies_set} a reclaim policy is set"
    );
    let shares = [held_back, crowded_out, policies_set];
    assert!(held_back >= 10 && crowded_out >= 1 && policies_set >= 10, "{shares:?} of 1,000");
}

#[test]
fn calm_worlds_settle() {
    let outcomes = all_settle(&worlds(CALM, UNPOLICED), UNPOLICED_WORLDS);
    assert_eventful(&outcomes, [200, 50]);
    // Worlds are odd: few have a claim that names a volume and has no findings.
    assert_foretold(&outcomes, [100, 5, 5, 5, 0]);
}

#[test]
fn rough_worlds_settle() {
    assert_eventful(&all_settle(&worlds(ROUGH, UNPOLICED), UNPOLICED_WORLDS), [200, 50]);
}

#[test]
fn calm_worlds_with_policies_settle() {
    let outcomes = all_settle(&worlds(CALM, POLICED), POLICED_WORLDS);
    assert_policed(&outcomes);
    assert_foretold(&outcomes, [100, 5, 5, 5, 5]);
}

#[test]
fn rough_worlds_with_policies_settle() {
    assert_policed(&all_settle(&worlds(ROUGH, POLICED), POLICED_WORLDS));
}

#[test]
fn a_world_depends_on_its_bytes_alone() {
    let (_, mut runner) = seeded_runner(0);
    for _ in 0..500 {
        let bytes = worlds(ROUGH, UNPOLICED).new_tree(&mut runner).expect("any bytes make a world").current();
        assert_eq!(trial::run(&bytes), trial::run(&bytes), "{bytes:?}");
    }
}
