//! Claims bind.

use serde_json::json;

use crate::simulated::{Cluster, claim, volume};

#[tokio::test(start_paused = true)]
async fn a_claim_binds_in_four_writes() {
    let cluster = Cluster::with([volume("v1"), claim("c1")]);
    let running = cluster.settled().await;
    cluster.assert_bound("c1", "v1");
    assert_eq!(
        cluster.writes(),
        [
            "patch persistentvolumes v1 200",
            "patch persistentvolumes/status v1 200",
            "patch persistentvolumeclaims c1 200",
            "patch persistentvolumeclaims/status c1 200",
        ]
    );
    let bound_by = |object: serde_json::Value| {
        object["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"].clone()
    };
    assert_eq!((bound_by(cluster.claim("c1")), bound_by(cluster.volume("v1"))), (json!("yes"), json!("yes")));
    let reference = &cluster.volume("v1")["spec"]["claimRef"];
    assert_eq!(
        (&reference["kind"], &reference["apiVersion"]),
        (&json!("PersistentVolumeClaim"), &json!("v1"))
    );
    assert!(reference["resourceVersion"].is_string());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_hundred_claims_bind_without_a_conflict() {
    let cluster = Cluster::new();
    for number in 0..200 {
        cluster.add(volume(&format!("v{number:03}")));
        cluster.add(claim(&format!("c{number:03}")));
    }
    let running = cluster.settled().await;
    let mut taken = std::collections::BTreeSet::new();
    for number in 0..200 {
        let name = format!("c{number:03}");
        let volume = cluster.claim(&name)["spec"]["volumeName"].as_str().unwrap_or_default().to_owned();
        cluster.assert_bound(&name, &volume);
        assert!(taken.insert(volume));
    }
    assert_eq!(running.binder.metrics().conflicts.get(), 0);
    assert_eq!(cluster.writes().len(), 800);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_at_rest_costs_watches_and_events_of_waiting_claims() {
    let cluster = Cluster::with([volume("v1"), claim("c1"), claim("waits")]);
    let running = cluster.settled().await;
    let decisions = running.binder.metrics().decisions.get();
    cluster.sim.take_requests();
    // A watch ends after a few minutes, and is opened again from the version that it has reached.
    cluster.until("watches are opened again", || cluster.sim.requests().len() >= 20).await;
    // The waiting claim is decided again, and its event is repeated before it expires.
    let mut requests = cluster.sim.take_requests();
    requests.retain(|request| request.verb != bindery_sim::Verb::Watch);
    assert!(requests.iter().all(|request| request.resource == "events"), "{requests:?}");
    let decided = running.binder.metrics().decisions.get() - decisions;
    assert_eq!(requests.len() as u64, decided, "{requests:?}");
    running.stop().await;
}
