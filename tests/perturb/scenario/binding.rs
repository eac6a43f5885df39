//! Claims and volumes that find each other.

use bindery_invariants::Rule;
use bindery_kit::json::{claim, class, merged, volume};
use serde_json::json;

use super::{naming, plain, reserved};
use crate::plugin::PLUGIN;
use crate::user::{CLAIMS, DRIVER, VOLUMES, reference};

scenarios! {
    "a claim finds a volume", &[], |user| {
        user.bind(plain("v1")).await;
    }
    "a claim waits for its volume", &[], |user| {
        user.create(claim("c1", json!({}))).await;
        user.until_waits("c1").await;
        user.create(plain("v1")).await;
        user.until_bound("c1").await;
    }
    "a volume names its claim", &[], |user| {
        user.create(reserved("v1", "c1")).await;
        user.create(plain("v2")).await;
        user.create(claim("c1", json!({}))).await;
        user.until_bound("c1").await;
    }
    "a claim names its volume", &[], |user| {
        user.create(naming("c1", "v2")).await;
        user.create(plain("v1")).await;
        user.create(plain("v2")).await;
        user.until_bound("c1").await;
    }
    "claim and volume name each other", &[], |user| {
        user.create(reserved("v1", "c1")).await;
        user.create(naming("c1", "v1")).await;
        user.until_bound("c1").await;
    }
    "two claims want one volume", &[], |user| {
        user.create(claim("c1", json!({}))).await;
        user.create(claim("c2", json!({}))).await;
        user.create(plain("v1")).await;
        user.until("a claim is bound", |user| {
            ["c1", "c2"].iter().any(|name| user.object(CLAIMS, name)["status"]["phase"] == "Bound")
        }).await;
    }
    "two claims name one volume", &[], |user| {
        user.create(plain("v1")).await;
        user.create(naming("c1", "v1")).await;
        user.create(naming("c2", "v1")).await;
        user.until("a claim is bound", |user| {
            ["c1", "c2"].iter().any(|name| user.object(CLAIMS, name)["status"]["phase"] == "Bound")
        }).await;
    }
    "three claims and three volumes", &[], |user| {
        for number in 1..=3 {
            user.create(plain(&format!("v{number}"))).await;
            user.create(claim(&format!("c{number}"), json!({}))).await;
        }
        for number in 1..=3 {
            user.until_bound(&format!("c{number}")).await;
        }
    }
    "a selector chooses", &[], |user| {
        let selector = json!({"matchLabels": {"tier": "fast"}});
        user.create(plain("v1")).await;
        user.create(volume("v2", json!({"metadata": {"labels": {"tier": "fast"}}}))).await;
        user.create(claim("c1", json!({"spec": {"selector": selector}}))).await;
        user.until_bound("c1").await;
    }
    "no volume fits until one comes", &[], |user| {
        user.create(plain("v1")).await;
        let large = json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}});
        user.create(claim("c1", large)).await;
        user.until_waits("c1").await;
        user.create(volume("v2", json!({"spec": {"capacity": {"storage": "10Gi"}}}))).await;
        user.until_bound("c1").await;
    }
    "a better volume comes while one is reserved", &[], |user| {
        user.create(claim("c1", json!({}))).await;
        user.until_waits("c1").await;
        user.create(volume("v1", json!({"spec": {"capacity": {"storage": "2Gi"}}}))).await;
        user.create(plain("v2")).await;
        user.until_bound("c1").await;
    }
    "a volume of the wrong mode is passed over", &[], |user| {
        user.create(volume("v1", json!({"spec": {"volumeMode": "Block"}}))).await;
        user.create(claim("c1", json!({}))).await;
        user.until_waits("c1").await;
        user.create(volume("v2", json!({"spec": {"capacity": {"storage": "2Gi"}}}))).await;
        user.until_bound("c1").await;
    }
    "binds are completed from each of their writes", &[], |user| {
        for (number, phase) in [(1, "Available"), (2, "Bound"), (3, "Bound")] {
            let (volume_name, claim_name) = (format!("v{number}"), format!("c{number}"));
            user.create(claim(&claim_name, json!({}))).await;
            let owner = user.object(CLAIMS, &claim_name);
            user.create(volume(&volume_name, json!({
                "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
                "spec": {"claimRef": reference(&owner)},
            }))).await;
            user.overwrite(VOLUMES, &volume_name, json!({"status": {"phase": phase}})).await;
        }
        let marks =
            json!({"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"});
        let bound = json!({"metadata": {"annotations": marks}, "spec": {"volumeName": "v3"}});
        user.overwrite(CLAIMS, "c3", bound).await;
        for claim in ["c1", "c2", "c3"] {
            user.until_bound(claim).await;
        }
    }
    "a claim gets modes and attributes of its volume", &[], |user| {
        let class = json!({"spec": {"volumeAttributesClassName": "fast"}});
        user.create(claim("c1", class)).await;
        user.until_waits("c1").await;
        user.create(plain("v1")).await;
        let modes = ["ReadWriteOnce", "ReadOnlyMany"];
        let driver = json!({"driver": DRIVER, "volumeHandle": "v2"});
        user.create(volume("v2", json!({"spec": {
            "accessModes": modes, "hostPath": null, "csi": driver, "volumeAttributesClassName": "fast",
        }}))).await;
        user.until_bound("c1").await;
    }
    "a volume without class wins over a default class", &[], |user| {
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        user.create(plain("v1")).await;
        user.create(claim("c1", json!({"spec": {"storageClassName": null}}))).await;
        user.until_bound("c1").await;
        user.create(class("gold", PLUGIN, json!({"metadata": {"annotations": annotations}}))).await;
    }
    // A leader that does not know the first volume would give the claim the class, which cannot be undone.
    // One that has seen the second volume has seen what became of the first one.
    "a known volume wins over a default class that comes with the claim", &[], |user| {
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        user.create(plain("v1")).await;
        user.until_phase(VOLUMES, "v1", "Available").await;
        user.create(volume("v2", json!({"spec": {"storageClassName": "other"}}))).await;
        user.until_phase(VOLUMES, "v2", "Available").await;
        user.create(claim("c1", json!({"spec": {"storageClassName": null}}))).await;
        user.create(class("gold", PLUGIN, json!({"metadata": {"annotations": annotations}}))).await;
        user.until_bound("c1").await;
    }
    "a narrower volume wins over the reserved one", &[Rule::Reservation, Rule::PairCompleted], |user| {
        let modes = json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}});
        user.create(plain("v1")).await;
        user.create(merged(reserved("v2", "c1"), modes)).await;
        user.create(claim("c1", json!({}))).await;
        user.until_bound("c1").await;
    }
    "a volume that is being resized gives the capacity from before", &[Rule::ClaimStatus], |user| {
        let annotations = json!({"volume.alpha.kubernetes.io/pre-resize-capacity": "1Gi"});
        let spec = json!({"capacity": {"storage": "2Gi"}});
        user.bind(volume("v1", json!({"metadata": {"annotations": annotations}, "spec": spec}))).await;
        user.until("the claim has the capacity from before", |user| {
            user.object(CLAIMS, "c1")["status"]["capacity"]["storage"] == "1Gi"
        }).await;
    }
    "a reserved volume is too small", &[Rule::Reservation, Rule::PairCompleted], |user| {
        let small = json!({"spec": {"capacity": {"storage": "512Mi"}}});
        user.create(merged(reserved("v1", "c1"), small)).await;
        user.create(claim("c1", json!({}))).await;
        user.until_waits("c1").await;
        user.create(plain("v2")).await;
        user.until_bound("c1").await;
    }
}
