//! Failures between binder and API server are repaired, and nothing is written twice.

use bindery_sim::FaultRule;
use serde_json::json;

use crate::simulated::{Cluster, claim, merged, volume};

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_is_not_repeated() {
    for (resource, nth) in [
        ("persistentvolumes", 1),
        ("persistentvolumes", 2),
        ("persistentvolumeclaims", 1),
        ("persistentvolumeclaims", 2),
    ] {
        let cluster = Cluster::with([volume("v1"), volume("v2"), claim("c1")]);
        cluster.sim.faults().add(FaultRule::writes(resource).nth(nth).lose_answer());
        let running = cluster.settled().await;
        cluster.assert_bound("c1", "v1");
        assert_eq!(cluster.volume("v2")["spec"]["claimRef"], json!(null), "{resource} {nth}");
        assert_eq!(running.binder.metrics().write_errors.get(), 1);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_refused_is_tried_again() {
    for (code, reason) in [
        (409, "Conflict"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
        (504, "Timeout"),
        (403, "Forbidden"),
    ] {
        for nth in 1..=2 {
            let cluster = Cluster::with([volume("v1"), claim("c1")]);
            for resource in ["persistentvolumes", "persistentvolumeclaims"] {
                cluster.sim.faults().add(FaultRule::writes(resource).nth(nth).fail(code, reason, "injected"));
            }
            let running = cluster.settled().await;
            cluster.assert_bound("c1", "v1");
            let metrics = running.binder.metrics();
            assert_eq!((metrics.conflicts.get() > 0, metrics.sync_errors.get() > 1), (code == 409, true));
            running.stop().await;
        }
    }
}

/// A claim of no name cannot be read, and an attempt would fail again and again.
#[tokio::test(start_paused = true)]
async fn a_claim_ref_that_is_no_name_gets_an_event_and_no_other_try() {
    for name in ["", "a/b"] {
        let reference = json!({"namespace": "default", "name": name, "uid": "u"});
        let cluster = Cluster::with([merged(volume("odd"), json!({"spec": {"claimRef": reference}}))]);
        let running = cluster.settled().await;
        running.events.flush().await;
        let [event] = &cluster.sim.objects("events")[..] else { panic!("not one event") };
        let message = event["message"].as_str().unwrap();
        assert!(message.contains(&format!("spec.claimRef.name: {name:?} is not the name")), "{message}");
        assert_eq!(running.binder.metrics().sync_errors.get(), 0);
        assert_eq!(cluster.writes(), [] as [&str; 0]);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_volume_gets_an_event_and_no_write() {
    let cluster = Cluster::new();
    cluster.add(merged(volume("odd"), json!({"spec": {"accessModes": ["ReadSometimes"]}})));
    cluster.add(volume("v2"));
    cluster.add(merged(claim("c1"), json!({"spec": {"volumeName": "odd"}})));
    cluster.add(claim("c2"));
    let running = cluster.settled().await;
    cluster.assert_bound("c2", "v2");
    assert_eq!(cluster.phases("c1", "odd").0, "Pending");
    running.events.flush().await;
    let events = cluster.sim.objects("events");
    let told = events.iter().find(|event| event["involvedObject"]["name"] == "odd").expect("an event");
    assert_eq!((&told["reason"], &told["type"]), (&json!("Unreadable"), &json!("Warning")));
    assert!(told["message"].as_str().unwrap().contains("ReadSometimes"));
    running.stop().await;
}
