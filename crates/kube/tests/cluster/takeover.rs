//! The requests of a replica before it decides as the leader.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bindery_kube::watch::until_current;
use bindery_sim::{FaultRule, LoggedRequest, Verb};
use bindery_store::Kind;
use tokio::time::timeout;

use crate::network::{Network, PATIENCE, VOLUMES, Watching, lists, now};
use crate::simulated::{Cluster, volume};

fn watches(requests: &[LoggedRequest]) -> Vec<&str> {
    let is_watch = |request: &&LoggedRequest| request.verb == Verb::Watch;
    requests.iter().filter(is_watch).map(|request| request.resource.as_str()).collect()
}

async fn requests_until_current(cluster: &Cluster, watching: &Watching) -> Vec<LoggedRequest> {
    cluster.sim.take_requests();
    let current = until_current(cluster.client(), watching.binder.intake());
    assert!(timeout(PATIENCE, current).await.is_ok(), "{:?}", cluster.sim.requests());
    cluster.sim.take_requests()
}

#[tokio::test(start_paused = true)]
async fn a_takeover_reads_each_kind_once_and_lists_the_stale_ones() {
    let cluster = Cluster::with([volume("v1")]);
    let watching = Watching::listed(&cluster, &cluster.client().into()).await;
    cluster.add(volume("v2"));
    watching.until_reached(Kind::Volume, &now(&cluster)).await;
    // The new volume has raised the cluster's version, which the watches of other kinds have not reached.
    let requests = requests_until_current(&cluster, &watching).await;
    assert_eq!(lists(&requests).len(), Kind::ALWAYS.len(), "one read of each kind: {requests:?}");
    let watches = watches(&requests);
    assert_eq!(watches.len(), Kind::ALWAYS.len() - 1, "one streamed list of each other kind: {requests:?}");
    assert!(!watches.contains(&VOLUMES));
    let requests = requests_until_current(&cluster, &watching).await;
    assert_eq!(requests.len(), Kind::ALWAYS.len(), "every watch has reached the version: {requests:?}");
}

/// A list of 100,000 volumes would take seconds.
#[tokio::test(start_paused = true)]
async fn a_stale_large_kind_is_current_only_when_a_bookmark_proves_it() {
    let (cluster, network) = (Cluster::new(), Network::of(VOLUMES));
    (0..=5_000).for_each(|number| cluster.add(volume(&format!("v{number}"))));
    let watching = Watching::listed(&cluster, &network.client(&cluster)).await;
    network.is_silent.store(true, Ordering::Relaxed);
    cluster.add(volume("unheard"));
    cluster.until("the event is lost", || network.lost() > 0).await;
    network.is_silent.store(false, Ordering::Relaxed);
    network.is_held.send_replace(true);
    cluster.sim.take_requests();
    let mut current = pin!(until_current(cluster.client(), watching.binder.intake()));
    let second = timeout(Duration::from_secs(1), &mut current).await;
    assert!(second.is_err(), "the watch has told nothing that proves it current");
    network.is_held.send_replace(false);
    assert!(timeout(PATIENCE, current).await.is_ok(), "{:?}", cluster.sim.requests());
    let requests = cluster.sim.take_requests();
    let of_volumes: Vec<_> =
        requests.iter().filter(|request| request.resource == VOLUMES).map(|request| request.verb).collect();
    assert_eq!(of_volumes, [Verb::List, Verb::Watch]);
    let names = watching.binder.store().volume_names();
    assert!(names.iter().any(|name| **name == *"unheard"), "it was written before the takeover");
    assert_eq!(names.len(), 5_002);
}

#[tokio::test(start_paused = true)]
async fn a_takeover_waits_for_a_kind_that_cannot_be_read() {
    let cluster = Cluster::new();
    let watching = Watching::listed(&cluster, &cluster.client().into()).await;
    cluster.sim.faults().add(FaultRule::new("list", VOLUMES).times(3));
    let requests = requests_until_current(&cluster, &watching).await;
    let reads = lists(&requests).into_iter().filter(|resource| *resource == VOLUMES).count();
    assert_eq!(reads, 4, "{requests:?}");
}
