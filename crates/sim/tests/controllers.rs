//! Garbage collection, and the claims of StatefulSets.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use bindery_sim::{Sim, SimOptions};
use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";

/// A simulator with the ConfigMaps `owner` and `other`.
async fn sim() -> Sim {
    let sim = Sim::new(SimOptions::default());
    for name in ["owner", "other"] {
        send(&sim, "POST", CONFIG_MAPS, config_map(name)).await;
    }
    sim
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

async fn send(sim: &Sim, method: &str, path: &str, body: Value) -> Value {
    let client = Client::new(sim.service(), "default");
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
    let answer = client.send(request).await.unwrap();
    assert!(answer.status().is_success(), "{method} {path}: {}", answer.status());
    serde_json::from_slice(&answer.into_body().collect_bytes().await.unwrap()).unwrap()
}

/// Creates a ConfigMap with owners.
async fn own(sim: &Sim, name: &str, owners: &[&str], finalizers: &[&str]) {
    let uid =
        |owner: &str| sim.object("configmaps", Some("default"), owner).unwrap()["metadata"]["uid"].clone();
    let reference = |owner: &&str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid(owner),
            "blockOwnerDeletion": true,
        })
    };
    let mut object = config_map(name);
    object["metadata"]["ownerReferences"] = owners.iter().map(reference).collect();
    object["metadata"]["finalizers"] = json!(finalizers);
    send(sim, "POST", CONFIG_MAPS, object).await;
}

async fn delete(sim: &Sim, name: &str, policy: &str) {
    send(sim, "DELETE", &format!("{CONFIG_MAPS}/{name}"), json!({"propagationPolicy": policy})).await;
}

/// The names of the ConfigMaps, each with its number of owners.
fn left(sim: &Sim) -> Vec<(String, usize)> {
    sim.map_objects("configmaps", |object| {
        let owners = object["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
        (object["metadata"]["name"].as_str().unwrap().to_owned(), owners)
    })
}

#[tokio::test(start_paused = true)]
async fn the_propagation_policy_decides_what_becomes_of_owned_objects() {
    for (policy, expected) in [
        ("Background", vec![("other", 0), ("shared", 1)]),
        ("Foreground", vec![("other", 0)]),
        ("Orphan", vec![("below", 1), ("other", 0), ("owned", 0), ("shared", 1)]),
    ] {
        let sim = sim().await;
        own(&sim, "owned", &["owner"], &[]).await;
        own(&sim, "below", &["owned"], &[]).await;
        own(&sim, "shared", &["owner", "other"], &[]).await;
        delete(&sim, "owner", policy).await;
        let expected: Vec<_> = expected.into_iter().map(|(name, owners)| (name.to_owned(), owners)).collect();
        assert_eq!(left(&sim), expected, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_waits_for_the_objects_that_block_it() {
    let sim = sim().await;
    own(&sim, "held", &["owner"], &["example.com/hold"]).await;
    delete(&sim, "owner", "Foreground").await;
    assert_eq!(left(&sim).len(), 3);
    let held = sim.object("configmaps", Some("default"), "held").unwrap();
    let mut free = held.clone();
    free["metadata"]["finalizers"] = Value::Null;
    send(&sim, "PUT", &format!("{CONFIG_MAPS}/held"), free).await;
    assert_eq!(left(&sim), [("other".to_owned(), 0)]);
}

/// A StatefulSet of name `db` with the labels `app: db`, and a claim template without name.
fn stateful_set(replicas: u32) -> (Value, Value) {
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let labels = json!({"app": "db"});
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "db", "image": "db"}]},
            },
        },
    });
    (set, json!({"metadata": {}, "spec": claim}))
}

/// The names of the claims of the StatefulSet.
fn claims(sim: &Sim) -> Vec<String> {
    sim.map_objects("persistentvolumeclaims", |claim| {
        assert_eq!(claim["metadata"]["labels"], json!({"app": "db"}));
        claim["metadata"]["name"].as_str().unwrap().to_owned()
    })
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_gets_a_claim_of_each_template_for_each_replica() {
    let sim = sim().await;
    let (mut set, template) = stateful_set(2);
    let named = |name| bindery_kit::json::merged(template.clone(), json!({"metadata": {"name": name}}));
    set["spec"]["volumeClaimTemplates"] = json!([named("data"), named("logs")]);
    let mut stored = send(&sim, "POST", STATEFUL_SETS, set).await;
    assert_eq!(claims(&sim), ["data-db-0", "data-db-1", "logs-db-0", "logs-db-1"]);
    stored["spec"]["replicas"] = 1000.into();
    send(&sim, "PUT", &format!("{STATEFUL_SETS}/db"), stored).await;
    assert_eq!(claims(&sim).len(), 100, "the claims are bounded");
}

#[tokio::test(start_paused = true)]
async fn the_claims_that_a_request_makes_have_bounded_bytes() {
    let sim = sim().await;
    let (mut set, mut template) = stateful_set(100);
    template["metadata"] = json!({"name": "data", "annotations": {"note": "x".repeat(200_000)}});
    set["spec"]["volumeClaimTemplates"] = json!([template]);
    send(&sim, "POST", STATEFUL_SETS, set).await;
    // 3 MiB.
    assert_eq!(claims(&sim).len(), 15);
}
