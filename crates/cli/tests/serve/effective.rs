//! Whether policies that are cluster objects take part in decisions, on a real API server.

use std::path::Path;

use bindery_cluster::{PolicyApi, condition, poll};
use serde_json::{Value, json};

use super::policy_objects::{cluster_with_kinds, cluster_with_kinds_and};
use super::steer::create_steered;

/// Waits until the condition `Effective` has a reason, and returns the status.
async fn until_effective(policies: &PolicyApi, kind: &str, name: &str, reason: &str) -> Value {
    let mut last = Value::Null;
    let found = poll(async || {
        last = policies.of(kind).get(name).await.unwrap().data["status"].take();
        (condition(&last, "Effective")["reason"] == reason).then_some(())
    });
    found.await.unwrap_or_else(|| panic!("{kind} {name} does not become {reason}: {last}"));
    last
}

#[tokio::test]
async fn a_policy_is_effective_where_it_matches_a_claim_that_is_decided() {
    let (cluster, policies, mut replica) = cluster_with_kinds().await;
    let waits = json!({
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.create_class_with("local", waits).await;
    let of_class = |class: &str| {
        let settings = json!({"times": 2});
        json!({
            "module": "builtin:at-most-n-times",
            "settings": settings,
            "match": {"classNames": [class]},
        })
    };
    for class in ["local", "fast"] {
        policies.apply("MatchPolicy", class, of_class(class)).await;
        policies.until_ready("MatchPolicy", class, "Loaded").await;
    }
    let waits = until_effective(&policies, "MatchPolicy", "local", "WaitsForConsumer").await;
    assert_eq!(condition(&waits, "Effective")["status"], "False");
    let unmatched = until_effective(&policies, "MatchPolicy", "fast", "NothingMatches").await;
    assert_eq!(condition(&unmatched, "Effective")["status"], "False");

    for class in ["local", "fast"] {
        cluster.create_claim_of(class, &format!("of-{class}"), None).await;
    }
    let matched = until_effective(&policies, "MatchPolicy", "fast", "Enforced").await;
    assert_eq!(condition(&matched, "Effective")["status"], "True");
    until_effective(&policies, "MatchPolicy", "local", "WaitsForConsumer").await;
    create_steered(&cluster, "steered", json!({"storageClassName": "local"})).await;
    until_effective(&policies, "MatchPolicy", "local", "Enforced").await;
    replica.terminate().await;
}

#[tokio::test]
async fn an_old_engine_asks_no_reclaimer_and_calls_of_an_engine_count() {
    let module = Path::new(env!("BINDERY_CHECKOUT")).join("tests/contract/engine-0.1.wasm");
    let old = format!("--engine={}", module.display());
    let (cluster, policies, mut replica) = cluster_with_kinds_and(&[&old]).await;
    policies.apply("ReclaimPolicy", "keep", json!({"module": "builtin:keep-labelled"})).await;
    until_effective(&policies, "ReclaimPolicy", "keep", "Engine01").await;
    let module = std::env::var("BINDERY_ENGINE").expect("`cargo xtask test` builds the engine");
    policies.apply("Engine", "new", json!({"module": module})).await;
    until_effective(&policies, "ReclaimPolicy", "keep", "NothingMatches").await;
    cluster.bind_pair("pair").await;
    until_effective(&policies, "ReclaimPolicy", "keep", "Enforced").await;
    let counted = poll(async || {
        let status = policies.of("Engine").get("new").await.unwrap().data["status"].take();
        (status["calls"].as_u64() > Some(0)).then_some(status)
    });
    assert_eq!(counted.await.expect("its calls are counted")["faults"], 0);
    replica.terminate().await;
}
