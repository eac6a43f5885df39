//! Every state of small clusters is visited: volumes and claims, two replicas that both think that they
//! lead, each with caches of volumes and of claims that lag, a user who edits pointers, crashes and lost
//! answers.
//!
//! The replicas are the real binder: see `replay`. What the model has and what it leaves out is in `cluster`,
//! what must hold in `law` and `rest`.
//!
//! In a second model an engine proposes whatever the contract has words for (`adversary`), and the guard has
//! to refuse what breaks a law.
//!
//! `BINDERY_MODEL=whole` searches the large worlds too, up to `BINDERY_STATES` states of each.

#![allow(clippy::print_stdout, reason = "counts are printed")]

mod adversary;
mod cluster;
mod json;
mod law;
mod objects;
mod replay;
mod rest;
mod search;
mod server;
mod turns;
mod user;
mod versions;
mod world;

use std::sync::Arc;

use bindery_core::Engine;
use bindery_engine::DefaultEngine;
use bindery_kit::number_from_env;

use crate::adversary::Adversary;
use crate::cluster::Cluster;
use crate::search::search;
use crate::turns::Turns;
use crate::world::World;

/// Most states of a small world: far more than any has.
const SMALL: usize = 2_000_000;
/// States that an adversary visits: those a few steps away, where a missing rule shows.
const ADVERSARY: usize = 150_000;
/// States of a large world that are visited by default.
const LARGE: u64 = 10_000_000;

/// Searches a world up to a number of states, and prints how large it is. Returns whether it was searched
/// whole.
///
/// # Panics
///
/// A law is broken.
fn check(world: World, engines: Vec<Arc<dyn Engine>>, states_max: usize) -> bool {
    let name = world.name;
    let mut cluster = Cluster::new(world, Turns::new(engines));
    let found = search(&mut cluster, states_max);
    let (states, depth, runs) = (found.states, found.depth, cluster.turns.runs);
    println!("{states} states, at most {depth} steps away, {runs} runs of a turn, {:?}: {name}", found.took);
    if let Some(broken) = found.broken {
        panic!("{name}:\n{broken}");
    }
    found.is_whole
}

fn default_engine() -> Vec<Arc<dyn Engine>> {
    vec![Arc::new(DefaultEngine)]
}

#[test]
fn no_engine_gets_a_broken_law_past_the_guard() {
    let engines = Adversary::all().into_iter().map(|engine| Arc::new(engine) as Arc<dyn Engine>);
    check(world::of_the_adversary(), engines.collect(), ADVERSARY);
}

#[test]
fn no_state_of_a_small_world_breaks_a_law() {
    for world in world::small() {
        let name = world.name;
        assert!(check(world, default_engine(), SMALL), "{name}: there are more states");
    }
}

#[test]
fn no_state_of_a_large_world_breaks_a_law() {
    if std::env::var("BINDERY_MODEL").is_ok_and(|model| model == "whole") {
        let states_max = number_from_env("BINDERY_STATES").unwrap_or(LARGE);
        for world in world::large() {
            check(world, default_engine(), usize::try_from(states_max).expect("a number of states"));
        }
    }
}
