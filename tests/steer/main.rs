//! Random worlds with two binders in mode steer beside upstream's binder.
//!
//! Upstream is the default engine in own mode (`upstream`): it sees claims and volumes by two workers that
//! lag separately, looks again only in a resync, and takes the requirement that steers a claim for what it
//! is. Both steering binders believe that they lead, have caches that lag by kind, and are replaced at times;
//! their writes may arrive late, and lose their answers. Users delete claims and make them again under their
//! names, reserve and free volumes, and remove Bindery's annotations. Claims of a class that waits for a pod
//! get their volumes from a model of the scheduler (`scheduler`).
//!
//! Each change is checked (`law`): a volume is reserved or labelled only where the policy allows it, no
//! second volume is reserved for a claim, upstream binds a steered claim only to a volume that was reserved
//! for its name or had its label, and a person's reservation stays. In the end everything rests, and nothing
//! waits, is reserved or labelled for nothing.
//!
//! A failure prints the seed and the shrunk world; see `settle` for `BINDERY_SEED` and `BINDERY_WORLDS`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "shares of worlds are printed")]

mod law;
mod scheduler;
mod steerer;
mod trial;
mod upstream;
mod world;

use bindery_kit::check_all;
use proptest::array::uniform4;
use proptest::collection::vec;
use proptest::prelude::any;

/// How many worlds each test has.
const WORLDS: (&str, u32) = ("BINDERY_WORLDS", 10_000);

#[test]
fn random_worlds_that_are_steered_keep_the_laws_and_rest() {
    try_worlds();
}

/// The same on another thread, with another seed. With `BINDERY_SEED` both try the same worlds.
#[test]
fn further_random_worlds_that_are_steered_keep_the_laws_and_rest() {
    try_worlds();
}

fn try_worlds() {
    let worlds = (vec(any::<u8>(), 0..48), vec(uniform4(any::<u8>()), 0..12));
    let outcomes = check_all(&worlds, WORLDS, |(objects, actions)| trial::run(objects, actions));
    let count = |holds: fn(&law::Counts) -> usize| outcomes.iter().map(holds).sum::<usize>();
    let (own, others) = (count(|counts| counts.own), count(|counts| counts.others));
    let (released, fenced) = (count(|counts| counts.released), count(|counts| counts.fenced));
    let labelled = count(|counts| counts.labelled);
    println!(
        "{own} binds by Bindery's reservations, {others} by others; {released} releases, {fenced} fences; \
         {labelled} binds by labels"
    );
    let worlds = outcomes.len();
    assert!(labelled * 20 > worlds);
    assert!(own * 2 > worlds && others * 50 > worlds && released * 50 > worlds && fenced * 200 > worlds);
}
