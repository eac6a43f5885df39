//! `bindery serve` on a real API server, with upstream's controllers except its binder.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "seeds are printed")]

mod cache;
mod classes;
mod compiling;
mod credentials;
mod deaths;
mod effective;
mod events;
mod explain;
mod faults;
mod folders;
mod holding;
mod idle;
mod journal;
mod kills;
mod leading;
#[path = "load.rs"]
mod load;
mod policies;
mod policy_objects;
mod registry;
mod registry_engine;
mod restored;
mod rollback;
mod shadows;
mod steer;
mod steer_mishaps;
mod steer_waiting;
#[path = "../support/mod.rs"]
mod support;
mod swaps;
mod watches;

use bindery_cluster::{Cluster, Manager, is_bound_to, is_in_phase};
use futures::StreamExt as _;
use http::StatusCode;
use serde_json::json;

#[tokio::test]
async fn a_claim_is_bound_and_its_volume_kept_after_its_deletion() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let mut replica = cluster.replica("first");
    cluster.create_available_volume("small", "1Gi").await;
    cluster.create_available_volume("large", "5Gi").await;
    cluster.create_claim("c", "2Gi").await;
    let claim = cluster.until_claim("c", is_bound_to("large")).await;
    assert_eq!(claim.status.unwrap().capacity.unwrap()["storage"].0, "5Gi");
    cluster.delete_claim("c").await;
    cluster.until_volume("large", is_in_phase("Released")).await;
    cluster.create_claim("d", "1Gi").await;
    cluster.until_claim("d", is_bound_to("small")).await;

    assert_eq!(replica.probe("/livez").await, (StatusCode::OK, "ok".to_owned()));
    let checks = "[+]lists ok\n[+]credentials ok\n[+]writes ok\n[+]eligibility ok\n[+]watches last heard: ";
    let (status, answer) = replica.until_answer("/readyz?verbose", checks).await;
    assert_eq!((status, answer.lines().last()), (StatusCode::OK, Some("readyz check passed")), "{answer}");
    replica.until_leading().await;
    assert_eq!(replica.metric("bindery_refusals_total").await, 0);
}

/// In each third of the pairs, the volume names the claim, the claim names the volume, or both do. Each has a
/// class of its own, so no claim takes the volume of another pair.
#[tokio::test]
async fn given_only_pairs_that_users_made_no_write_conflicts() {
    const PAIRS: usize = 120;
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let mut replica = cluster.replica("first");
    replica.until_leading().await;
    let create = async |number: usize| {
        let name = format!("p{number}");
        let (named, names) = (number % 3 != 1, number % 3 != 2);
        let claim_ref = named.then(|| json!({"namespace": "default", "name": name}));
        let volume = cluster.create_volume_of(&name, &name, json!(claim_ref));
        tokio::join!(volume, cluster.create_claim_of(&name, &name, names.then_some(&name)));
    };
    futures::stream::iter(0..PAIRS).for_each_concurrent(16, create).await;
    cluster.check_pairs(PAIRS).await;
    assert_eq!(replica.metric("bindery_conflicts_total").await, 0, "{}", replica.log());
}
