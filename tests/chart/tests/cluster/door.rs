//! Which requests the API server sends to Bindery.
//!
//! Nobody answers here and the failure policy is Fail, so a request that is sent on is refused for that
//! reason, and one that passes was not sent.

use bindery_chart::rendered;
use http::Method;
use serde_json::{Value, json};

use crate::site::{ADMIN, As, LOOK_EVERY, LOOKS_MAX, Refusal, Site, claim, volume};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";

/// Whether a request was sent to Bindery.
fn was_sent(answer: &Result<Value, Refusal>) -> bool {
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
fn volume_of(namespace: &str, name: &str) -> Value {
    let mut volume = volume(name, "Retain");
    volume["spec"]["claimRef"] = json!({"namespace": namespace, "name": "c"});
    volume
}

/// Metadata of a claim whose bind is complete.
fn completed(name: &str) -> Value {
    json!({"namespace": "default", "name": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}})
}

/// A site with objects, and then with the door.
async fn site() -> Site {
    let site = Site::start().await;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "grows"},
        "provisioner": "example.com/provisioner",
        "allowVolumeExpansion": true,
    });
    let folder = "/apis/storage.k8s.io/v1/storageclasses";
    site.ask(ADMIN, Method::POST, folder, Some(&class)).await.unwrap();
    let mut grows = claim("default", "grows", "1Gi");
    grows["spec"]["storageClassName"] = "grows".into();
    let mut bound = grows.clone();
    bound["metadata"] = completed("bound");
    bound["spec"]["volumeName"] = "bounds".into();
    let mut nameless = claim("default", "nameless", "1Gi");
    nameless["metadata"] = completed("nameless");
    for object in [
        grows,
        bound,
        nameless,
        claim("default", "c", "1Gi"),
        claim("default", "going", "1Gi"),
        claim("default", "named", "1Gi"),
        volume("v", "Retain"),
        volume("reserved", "Retain"),
        volume_of("default", "held"),
        volume_of("kube-system", "control-planes"),
    ] {
        site.create(&object, "").await.unwrap();
    }
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    site.patch(&format!("{CLAIMS}/going"), &hold).await.unwrap();
    let objects = rendered(&json!({"webhook": {"failurePolicy": "Fail"}}));
    site.install(&objects, &["ValidatingWebhookConfiguration"]).await;
    let mut looks = tokio::time::interval(LOOK_EVERY);
    for _ in 0..LOOKS_MAX {
        looks.tick().await;
        if was_sent(&site.create(&claim("default", "probe", "1Gi"), "dryRun=All").await)
            && was_sent(&site.create(&volume("probe", "Retain"), "dryRun=All").await)
        {
            return site;
        }
    }
    panic!("the API server never sends a review");
}

#[tokio::test]
async fn only_what_may_matter_is_sent() {
    let site = site().await;
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
        // Nobody must wait for Bindery who has a claim grow that has its volume.
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
        assert_eq!(was_sent(&site.patch(&path, &change).await), matters, "{path}: {change}");
    }
}

#[tokio::test]
async fn nothing_is_kept_from_going_and_the_control_plane_goes_unasked() {
    const BINDERY: As = As {
        user: "system:serviceaccount:bindery-system:bindery",
        groups: &["system:serviceaccounts", "system:serviceaccounts:bindery-system", "system:masters"],
    };
    const CONTROLLER: As = As {
        user: "system:serviceaccount:kube-system:persistent-volume-binder",
        groups: &["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:masters"],
    };
    const MANAGER: As = As { user: "system:kube-controller-manager", groups: &["system:masters"] };
    const NODE: As = As { user: "system:node:one", groups: &["system:nodes", "system:masters"] };
    const TENANT: As = As {
        user: "system:serviceaccount:default:builder",
        groups: &["system:serviceaccounts", "system:serviceaccounts:default", "system:masters"],
    };
    let site = site().await;
    // Whatever it says of itself.
    let mut pretends = claim("default", "new", "1Gi");
    pretends["metadata"] = completed("new");
    assert!(was_sent(&site.create(&pretends, "dryRun=All").await));
    for (who, is_asked) in [
        (BINDERY, false),
        (CONTROLLER, false),
        (MANAGER, false),
        (NODE, false),
        (TENANT, true),
        (ADMIN, true),
    ] {
        for (path, object) in [(CLAIMS, claim("default", "new", "1Gi")), (VOLUMES, volume("new", "Retain"))] {
            let path = format!("{path}?dryRun=All");
            let answer = site.ask(who, Method::POST, &path, Some(&object)).await;
            assert_eq!(was_sent(&answer), is_asked, "{} at {path}", who.user);
        }
    }
    for (namespace, is_asked) in [
        ("kube-system", false),
        ("kube-public", false),
        ("kube-node-lease", false),
        ("bindery-system", false),
        ("default", true),
    ] {
        let answer = site.create(&claim(namespace, "new", "1Gi"), "dryRun=All").await;
        assert_eq!(was_sent(&answer), is_asked, "{namespace}");
    }
    // Volumes that are reserved for claims of these namespaces, unless somebody else loses one by it.
    assert!(!was_sent(&site.create(&volume_of("kube-system", "new"), "dryRun=All").await));
    assert!(was_sent(&site.create(&volume_of("default", "new"), "dryRun=All").await));
    let change = json!({"spec": {"claimRef": {"namespace": "kube-system", "name": "d"}}});
    for (name, is_asked) in [("v", false), ("control-planes", false), ("held", true)] {
        let answer = site.patch(&format!("{VOLUMES}/{name}?dryRun=All"), &change).await;
        assert_eq!(was_sent(&answer), is_asked, "{name}");
    }
    // Deletion, and what happens to an object until it is gone.
    let going = format!("{CLAIMS}/going");
    assert!(!was_sent(&site.ask(ADMIN, Method::DELETE, &going, None).await));
    let change = json!({"spec": {"volumeName": "v"}, "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}});
    assert!(!was_sent(&site.patch(&going, &change).await));
    assert!(!was_sent(&site.patch(&going, &json!({"metadata": {"finalizers": null}})).await));
    assert!(!was_sent(&site.ask(ADMIN, Method::DELETE, &format!("{VOLUMES}/reserved"), None).await));
}
