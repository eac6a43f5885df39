//! What a replica asks for before it decides as the leader.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bindery_kube::watch::until_current;
use bindery_sim::{FaultRule, LoggedRequest, Verb};
use bindery_store::Kind;
use tokio::time::timeout;

use crate::wire::{PATIENCE, VOLUMES, Watching, Wire, lists, now};
use crate::world::{World, volume};

/// Watches among requests, by resource.
fn watches(requests: &[LoggedRequest]) -> Vec<&str> {
    let is_watch = |request: &&LoggedRequest| request.verb == Verb::Watch;
    requests.iter().filter(is_watch).map(|request| request.resource.as_str()).collect()
}

async fn requests_until_current(world: &World, watching: &Watching) -> Vec<LoggedRequest> {
    world.sim.take_requests();
    let current = until_current(world.client(), watching.binder.intake());
    assert!(timeout(PATIENCE, current).await.is_ok(), "{:?}", world.sim.requests());
    world.sim.take_requests()
}

#[tokio::test(start_paused = true)]
async fn a_takeover_reads_each_kind_once_and_lists_those_whose_watch_is_behind() {
    let world = World::new();
    world.add(volume("v1"));
    let watching = Watching::start(&world, &world.client().into());
    watching.until_listed(&world).await;
    world.add(volume("v2"));
    watching.until_reached(Kind::Volume, &now(&world)).await;
    // The change of a volume has raised the version, and the watches of the other kinds have not heard of it.
    let requests = requests_until_current(&world, &watching).await;
    assert_eq!(lists(&requests).len(), Kind::ALL.len(), "one read of each kind: {requests:?}");
    let watches = watches(&requests);
    assert_eq!(watches.len(), Kind::ALL.len() - 1, "one streamed list of each other kind: {requests:?}");
    assert!(!watches.contains(&VOLUMES));
    let requests = requests_until_current(&world, &watching).await;
    assert_eq!(requests.len(), Kind::ALL.len(), "every watch has reached the version: {requests:?}");
}

/// A list of 100,000 volumes would take seconds.
#[tokio::test(start_paused = true)]
async fn the_watch_of_a_large_kind_is_opened_anew() {
    let (world, wire) = (World::new(), Arc::<Wire>::default());
    (0..=5_000).for_each(|number| world.add(volume(&format!("v{number}"))));
    let watching = Watching::start(&world, &wire.client(&world));
    watching.until_listed(&world).await;
    wire.is_silent.store(true, Ordering::Relaxed);
    world.add(volume("unheard"));
    world.until("the event is lost", || wire.lost() > 0).await;
    wire.is_silent.store(false, Ordering::Relaxed);
    let requests = requests_until_current(&world, &watching).await;
    let of_volumes: Vec<_> =
        requests.iter().filter(|request| request.resource == VOLUMES).map(|request| request.verb).collect();
    assert_eq!(of_volumes, [Verb::List, Verb::Watch]);
    let names = watching.binder.store().volume_names();
    assert!(names.iter().any(|name| **name == *"unheard"), "it was written before the takeover");
    assert_eq!(names.len(), 5_002);
}

#[tokio::test(start_paused = true)]
async fn a_takeover_waits_for_a_kind_that_cannot_be_read() {
    let world = World::new();
    let watching = Watching::start(&world, &world.client().into());
    watching.until_listed(&world).await;
    world.sim.faults().add(FaultRule::new("list", VOLUMES).times(3));
    let requests = requests_until_current(&world, &watching).await;
    let reads = lists(&requests).into_iter().filter(|resource| *resource == VOLUMES).count();
    assert_eq!(reads, 4, "{requests:?}");
}
