//! Every state of small clusters is visited: volumes and claims, two replicas that both think that they
//! lead, each with caches of volumes and of claims that lag, a user who edits pointers, crashes and lost
//! answers.
//!
//! The replicas are the real binder: see `replay`. What the model has and what it leaves out is in `cluster`,
//! what must hold in `law` and `rest`.
//!
//! In a second model an engine proposes whatever the contract has words for (`adversary`), in its own worlds
//! (`adverse`). The guard has to refuse what breaks a law. `cargo xtask soak rules` takes each rule of the
//! guard out, and the model has to find that (`rules`).
//!
//! `BINDERY_MODEL=whole` searches the large worlds too, up to `BINDERY_STATES` states of each.

#![allow(clippy::print_stdout, reason = "counts are printed")]

mod adversary;
mod adverse;
mod cluster;
mod duty;
mod json;
mod law;
mod objects;
mod replay;
mod rest;
mod rules;
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
use crate::rules::BROKEN;
use crate::search::{Found, search};
use crate::turns::Turns;
use crate::world::World;

/// Most states of a small world: far more than any has.
const SMALL: usize = 2_000_000;
/// States of the adversary's largest world that are visited: those a few steps away, where a missing rule
/// shows.
const ADVERSARY: usize = 150_000;
/// States of a large world that are visited by default.
const LARGE: u64 = 10_000_000;

/// Searches a world up to a number of states, and prints how large it is.
fn visit(world: World, engines: Vec<Arc<dyn Engine>>, states_max: usize) -> Found {
    let name = world.name;
    let mut cluster = Cluster::new(world, Turns::new(engines));
    let found = search(&mut cluster, states_max);
    let (states, depth, runs) = (found.states, found.depth, cluster.turns.runs);
    println!("{states} states, at most {depth} steps away, {runs} runs of a turn, {:?}: {name}", found.took);
    found
}

/// Searches a world, and returns whether it was searched whole.
///
/// # Panics
///
/// A law is broken.
fn check(world: World, engines: Vec<Arc<dyn Engine>>, states_max: usize) -> bool {
    let found = visit(world, engines, states_max);
    if let Some(broken) = found.broken {
        panic!("{broken}");
    }
    found.is_whole
}

fn default_engine() -> Vec<Arc<dyn Engine>> {
    vec![Arc::new(DefaultEngine)]
}

#[test]
fn no_engine_gets_a_broken_law_past_the_guard() {
    let engines = Adversary::all().into_iter().map(|engine| Arc::new(engine) as Arc<dyn Engine>);
    let engines: Vec<_> = engines.collect();
    let worlds = adverse::worlds(ADVERSARY).into_iter();
    let broken = worlds.filter_map(|(world, states_max)| visit(world, engines.clone(), states_max).broken);
    if let Some(broken) = broken.min_by_key(|broken| broken.way.len()) {
        println!("{BROKEN}{} steps: {}, where {}", broken.way.len(), broken.law, broken.world);
        panic!("{broken}");
    }
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
