//! In mode steer the API server refuses what Bindery's account must not write, whatever its roles allow.

use bindery_cluster::Cluster;
use bindery_kit::json;
use http::Method;
use serde_json::{Value, json};

use crate::api_server::{User, until, volume};
use crate::steering::{key, limited};

const CLAIMS: &str = "/api/v1/namespaces/shop/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
/// The account with every right.
const BINDERY: User = User {
    name: "system:serviceaccount:bindery-system:bindery",
    groups: &["system:serviceaccounts", "system:serviceaccounts:bindery-system", "system:masters"],
};
const CHOICE: &str = "steer.bindery.dev/choice";
const TOUCHED: &str = "steer.bindery.dev/touched";
const RESERVED_FOR: &str = "steer.bindery.dev/reserved-for";
const FENCE: &str = "steer.bindery.dev/fence";
const LABEL: &str = "c.shop.steer.bindery.dev/claim";

/// An API server with a steered claim `c`, one that is not, and volumes: free, reserved by a person, bound.
async fn start() -> Cluster {
    let api = limited().await;
    let steered = json!({"matchExpressions": [{"key": key("c"), "operator": "Exists"}]});
    for (name, selector) in [("c", steered), ("other", Value::Null)] {
        let spec = json!({"storageClassName": "local", "selector": selector});
        let claim = json::claim(name, json!({"metadata": {"namespace": "shop"}, "spec": spec}));
        api.create(&claim, "").await.unwrap();
    }
    for (name, claim_ref) in [
        ("free", Value::Null),
        ("persons", json!({"namespace": "shop", "name": "p"})),
        ("bound", json!({"namespace": "shop", "name": "p", "uid": "uid"})),
    ] {
        let change = json!({"spec": {"claimRef": claim_ref, "storageClassName": "local"}});
        api.create(&json::merged(volume(name, "Retain"), change), "").await.unwrap();
    }
    // A binding counts after a moment.
    until("the account is limited", async || {
        let change = annotated("other", "x");
        match patch(&api, &format!("{CLAIMS}/c?dryRun=All"), &change).await {
            Ok(_) => Err("it may annotate".to_owned()),
            Err(_) => Ok(()),
        }
    })
    .await;
    api
}

async fn patch(api: &Cluster, path: &str, change: &Value) -> Result<Value, String> {
    api.send(BINDERY.request(Method::PATCH, path, change)).await
}

fn annotated(key: &str, value: impl Into<Value>) -> Value {
    json!({"metadata": {"annotations": {key: value.into()}}})
}

/// A reservation, with further fields of the claimRef.
fn reservation(annotation: Value, further: Value) -> Value {
    let named =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "shop", "name": "c"});
    let mut change = annotated(RESERVED_FOR, annotation);
    change["spec"] = json!({"claimRef": json::merged(named, further)});
    change
}

fn released() -> Value {
    let mut change = annotated(RESERVED_FOR, Value::Null);
    change["spec"] = json!({"claimRef": null});
    change
}

#[tokio::test]
async fn the_account_may_write_what_steering_takes() {
    let api = start().await;
    let (claim, free) = (format!("{CLAIMS}/c"), format!("{VOLUMES}/free"));
    for (path, change) in [
        (&claim, annotated(CHOICE, "free uid")),
        (&free, annotated(FENCE, "1")),
        (&free, reservation(json!("shop/c uid"), json!({}))),
        (&claim, annotated(TOUCHED, "1")),
        (&free, annotated(FENCE, Value::Null)),
        (&free, released()),
        (&free, json!({"metadata": {"labels": {LABEL: "uid"}}})),
        (&free, json!({"metadata": {"labels": {LABEL: null}}})),
        (&claim, json!({"metadata": {"annotations": {CHOICE: null, TOUCHED: null}}})),
    ] {
        patch(&api, path, &change).await.unwrap_or_else(|why| panic!("{path}: {change}: {why}"));
    }
}

#[tokio::test]
async fn the_account_may_write_nothing_else_with_every_right() {
    let api = start().await;
    let reserved = |further| reservation(json!("shop/c uid"), further);
    let with_policy = json::merged(reserved(json!({})), delete_policy());
    let of_person =
        json!({"metadata": {"annotations": {RESERVED_FOR: "shop/p uid"}}, "spec": {"claimRef": null}});
    for (path, change, said) in [
        ("free", reserved(json!({"uid": "uid"})), "reserves free volumes by name"),
        ("free", reserved(json!({"resourceVersion": "1"})), "reserves free volumes by name"),
        ("free", reservation(Value::Null, json!({})), "reserves free volumes by name"),
        ("free", reservation(json!("shop/d uid"), json!({})), "reserves free volumes by name"),
        ("persons", reserved(json!({})), "reserves free volumes by name"),
        ("persons", released(), "removes only such reservations"),
        ("persons", of_person, "removes only such reservations"),
        ("persons", annotated(RESERVED_FOR, "shop/p uid"), "only as it reserves it"),
        ("bound", released(), "removes only such reservations"),
        ("bound", json!({"spec": {"claimRef": {"uid": null}}}), "removes only such reservations"),
        ("free", with_policy, "nothing of a volume's spec but claimRef"),
        ("free", delete_policy(), "nothing of a volume's spec but claimRef"),
        ("free", annotated("pv.kubernetes.io/bound-by-controller", "yes"), "only its own annotations"),
        ("free", json!({"metadata": {"labels": {"team": "a"}}}), "no labels but those that steer"),
        ("free", json!({"metadata": {"finalizers": ["a.b/c"]}}), "no finalizers"),
        ("free/status", json!({"status": {"phase": "Failed"}}), "writes no status"),
    ] {
        refused(&api, &format!("{VOLUMES}/{path}"), &change, said).await;
    }
    for (path, change, said) in [
        ("c", json!({"spec": {"volumeName": "free"}}), "not their spec"),
        ("c", annotated("volume.kubernetes.io/selected-node", "n"), "only its own annotations"),
        ("c", annotated(RESERVED_FOR, "shop/c uid"), "only its own annotations"),
        ("c", json!({"metadata": {"labels": {LABEL: "uid"}}}), "no labels"),
        ("other", annotated(CHOICE, "free uid"), "only on claims that are steered"),
        ("c/status", json!({"status": {"phase": "Bound"}}), "writes no status"),
    ] {
        refused(&api, &format!("{CLAIMS}/{path}"), &change, said).await;
    }
    for (method, path, body) in [
        (Method::DELETE, format!("{VOLUMES}/free"), Value::Null),
        (Method::POST, VOLUMES.to_owned(), volume("new", "Retain")),
    ] {
        let why = api.send(BINDERY.request(method, &path, &body)).await.unwrap_err();
        assert!(why.contains("creates and deletes none"), "{why}");
    }
}

fn delete_policy() -> Value {
    json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
}

async fn refused(api: &Cluster, path: &str, change: &Value, said: &str) {
    let why = patch(api, path, change).await.expect_err(&format!("{path}: {change}"));
    assert!(why.contains("bindery-account") && why.contains(said), "{path}: {change}: {why}");
}
