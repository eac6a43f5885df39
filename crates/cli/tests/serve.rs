//! `bindery serve` on a real API server, with upstream's controllers except its binder.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "seeds are printed")]

#[path = "serve/cache.rs"]
mod cache;
#[path = "serve/classes.rs"]
mod classes;
#[path = "serve/credentials.rs"]
mod credentials;
#[path = "serve/deaths.rs"]
mod deaths;
#[path = "serve/effective.rs"]
mod effective;
#[path = "serve/events.rs"]
mod events;
#[path = "serve/explain.rs"]
mod explain;
#[path = "serve/faults.rs"]
mod faults;
#[path = "serve/idle.rs"]
mod idle;
#[path = "serve/journal.rs"]
mod journal;
#[path = "serve/kills.rs"]
mod kills;
#[path = "serve/leading.rs"]
mod leading;
#[path = "serve/load.rs"]
mod load;
#[path = "serve/policies.rs"]
mod policies;
#[path = "serve/policy_objects.rs"]
mod policy_objects;
#[path = "serve/registry.rs"]
mod registry;
#[path = "serve/restored.rs"]
mod restored;
#[path = "serve/rollback.rs"]
mod rollback;
#[path = "serve/shadows.rs"]
mod shadows;
#[path = "serve/steer.rs"]
mod steer;
#[path = "serve/steer_mishaps.rs"]
mod steer_mishaps;
#[path = "serve/steer_waiting.rs"]
mod steer_waiting;
mod support;
#[path = "serve/swaps.rs"]
mod swaps;
#[path = "serve/watches.rs"]
mod watches;

use bindery_cluster::{Cluster, Manager, is_bound_to, is_in_phase};
use http::StatusCode;

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
