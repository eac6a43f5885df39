//! The requests that the API server sends to Bindery for review.
//!
//! No webhook answers here and the failure policy is Fail. So a request that is sent for review is refused
//! for that reason, and a request that passes was not sent.

use bindery_chart::rendered;
use bindery_cluster::Cluster;
use bindery_kit::json;
use http::Method;
use serde_json::{Value, json};

use crate::api_server::{self, ADMIN, User, claim, install, until, volume};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";

/// Whether a request was sent for review.
fn was_sent(answer: &Result<Value, String>) -> bool {
    match answer {
        Ok(_) => false,
        Err(why) if why.contains("failed calling webhook") => {
            assert!(why.contains(".bindery.dev"), "{why}");
            true
        }
        Err(why) => panic!("refused for another reason: {why}"),
    }
}

/// A volume that is reserved for a claim in a namespace.
fn volume_for(namespace: &str, name: &str) -> Value {
    let mut volume = volume(name, "Retain");
    volume["spec"]["claimRef"] = json!({"namespace": namespace, "name": "c"});
    volume
}

/// Metadata of a claim whose bind is complete.
fn completed(name: &str) -> Value {
    json!({"namespace": "default", "name": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}})
}

/// An API server with objects, and then with the webhook.
async fn start() -> Cluster {
    let api = api_server::start().await;
    let class = json::class("grows", "example.com/provisioner", json!({"allowVolumeExpansion": true}));
    let mut grows = claim("default", "grows", "1Gi");
    grows["spec"]["storageClassName"] = "grows".into();
    let mut bound = grows.clone();
    bound["metadata"] = completed("bound");
    bound["spec"]["volumeName"] = "bounds".into();
    let mut nameless = claim("default", "nameless", "1Gi");
    nameless["metadata"] = completed("nameless");
    for object in [
        class,
        grows,
        bound,
        nameless,
        claim("default", "c", "1Gi"),
        claim("default", "going", "1Gi"),
        claim("default", "named", "1Gi"),
        volume("v", "Retain"),
        volume("reserved", "Retain"),
        volume_for("default", "held"),
        volume_for("kube-system", "control-planes"),
    ] {
        api.create(&object, "").await.unwrap();
    }
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    api.patch(&format!("{CLAIMS}/going"), &hold).await.unwrap();
    let objects = rendered(&json!({"webhook": {"failurePolicy": "Fail"}}));
    install(&api, &objects, &["ValidatingWebhookConfiguration"]).await;
    for object in [claim("default", "probe", "1Gi"), volume("probe", "Retain")] {
        until("the API server sends reviews", async || {
            let answer = api.create(&object, "dryRun=All").await;
            if was_sent(&answer) { Ok(()) } else { Err(format!("{answer:?}")) }
        })
        .await;
    }
    api
}

#[tokio::test]
async fn only_changes_that_may_matter_are_sent() {
    let api = start().await;
    let annotate = |key: &str| json!({"metadata": {"annotations": {key: "x"}}});
    let class = "volume.beta.kubernetes.io/storage-class";
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    for (path, change, matters) in [
        (format!("{CLAIMS}/c"), annotate("example.com/note"), false),
        (format!("{CLAIMS}/c"), annotate("volume.kubernetes.io/selected-node"), false),
        (format!("{CLAIMS}/c"), json!({"metadata": {"labels": {"team": "storage"}}}), false),
        (format!("{CLAIMS}/c"), json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}}), false),
        (format!("{CLAIMS}/grows/status"), json!({"status": {"phase": "Bound"}}), false),
        (format!("{CLAIMS}/c"), annotate("pv.kubernetes.io/bind-completed"), true),
        (format!("{CLAIMS}/named"), json!({"spec": {"volumeName": "v"}}), true),
        (format!("{CLAIMS}/grows"), more.clone(), true),
        // A claim that has its volume grows without Bindery.
        (format!("{CLAIMS}/bound/status"), json!({"status": {"phase": "Bound"}}), false),
        (format!("{CLAIMS}/bound"), more, false),
        (format!("{CLAIMS}/bound"), json!({"metadata": {"annotations": null}}), true),
        (format!("{CLAIMS}/nameless"), json!({"spec": {"volumeName": "v"}}), true),
        (format!("{VOLUMES}/v"), annotate("example.com/note"), false),
        (format!("{VOLUMES}/v"), json!({"metadata": {"finalizers": ["kubernetes.io/pv-protection"]}}), false),
        (format!("{VOLUMES}/v/status"), json!({"status": {"phase": "Available"}}), false),
        (format!("{VOLUMES}/v"), json!({"metadata": {"labels": {"team": "storage"}}}), false),
        (format!("{VOLUMES}/v"), json!({"metadata": {"labels": {"bindery.dev/precious": "true"}}}), true),
        (format!("{VOLUMES}/v"), annotate(class), true),
        (format!("{VOLUMES}/v"), json!({"spec": {"claimRef": {"namespace": "default", "name": "c"}}}), true),
        (format!("{VOLUMES}/v"), json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}), true),
    ] {
        assert_eq!(was_sent(&api.patch(&path, &change).await), matters, "{path}: {change}");
    }
}

#[tokio::test]
async fn deletions_and_the_control_planes_requests_are_never_sent() {
    const BINDERY: User = User {
        name: "system:serviceaccount:bindery-system:bindery",
        groups: &["system:serviceaccounts", "system:serviceaccounts:bindery-system", "system:masters"],
    };
    const CONTROLLER: User = User {
        name: "system:serviceaccount:kube-system:persistent-volume-binder",
        groups: &["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:masters"],
    };
    const MANAGER: User = User { name: "system:kube-controller-manager", groups: &["system:masters"] };
    const NODE: User = User { name: "system:node:one", groups: &["system:nodes", "system:masters"] };
    const TENANT: User = User {
        name: "system:serviceaccount:default:builder",
        groups: &["system:serviceaccounts", "system:serviceaccounts:default", "system:masters"],
    };
    let api = start().await;
    // A new claim that pretends to be bound.
    let mut pretends = claim("default", "new", "1Gi");
    pretends["metadata"] = completed("new");
    assert!(was_sent(&api.create(&pretends, "dryRun=All").await));
    for (user, is_sent) in [
        (BINDERY, false),
        (CONTROLLER, false),
        (MANAGER, false),
        (NODE, false),
        (TENANT, true),
        (ADMIN, true),
    ] {
        for (path, object) in [(CLAIMS, claim("default", "new", "1Gi")), (VOLUMES, volume("new", "Retain"))] {
            let path = format!("{path}?dryRun=All");
            let answer = api.send(user.request(Method::POST, &path, &object)).await;
            assert_eq!(was_sent(&answer), is_sent, "{} at {path}", user.name);
        }
    }
    for (namespace, is_sent) in [
        ("kube-system", false),
        ("kube-public", false),
        ("kube-node-lease", false),
        ("bindery-system", false),
        ("default", true),
    ] {
        let answer = api.create(&claim(namespace, "new", "1Gi"), "dryRun=All").await;
        assert_eq!(was_sent(&answer), is_sent, "{namespace}");
    }
    // Volumes reserved for claims of these namespaces, unless another claim loses its volume.
    assert!(!was_sent(&api.create(&volume_for("kube-system", "new"), "dryRun=All").await));
    assert!(was_sent(&api.create(&volume_for("default", "new"), "dryRun=All").await));
    let change = json!({"spec": {"claimRef": {"namespace": "kube-system", "name": "d"}}});
    for (name, is_sent) in [("v", false), ("control-planes", false), ("held", true)] {
        let answer = api.patch(&format!("{VOLUMES}/{name}?dryRun=All"), &change).await;
        assert_eq!(was_sent(&answer), is_sent, "{name}");
    }
    // A deletion, and changes of an object that is being deleted.
    let going = format!("{CLAIMS}/going");
    assert!(!was_sent(&api.delete(&going).await));
    let change = json!({"spec": {"volumeName": "v"}, "metadata": completed("going")});
    assert!(!was_sent(&api.patch(&going, &change).await));
    assert!(!was_sent(&api.patch(&going, &json!({"metadata": {"finalizers": null}})).await));
    assert!(!was_sent(&api.delete(&format!("{VOLUMES}/reserved")).await));
}
