//! Claims that are deleted, and volumes that are reclaimed.

use bindery_kit::json::claim;
use http::Method;
use serde_json::json;

use super::{in_tree, plain, provisioned_by, with_policy};
use crate::delay::pass;
use crate::user::{CLAIMS, SETTLED, VOLUMES, path, pod};

scenarios! {
    "a retained volume is released", &[], |user| {
        user.bind(plain("v1")).await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
    }
    "a claim is deleted while it binds", &[], |user| {
        user.create(plain("v1")).await;
        user.create(claim("c1", json!({}))).await;
        user.until_reserved("v1").await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
    }
    "a claim is made again under its name", &[], |user| {
        user.bind(plain("v1")).await;
        user.delete(CLAIMS, "c1").await;
        user.create(claim("c1", json!({}))).await;
        user.create(plain("v2")).await;
        user.until_bound("c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
    }
    "a volume is deleted with its claim", &[], |user| {
        user.bind(in_tree("v1")).await;
        user.delete(CLAIMS, "c1").await;
        user.until_gone(VOLUMES, "v1").await;
    }
    "a deleted volume stays until its claim is deleted", &[], |user| {
        user.bind(in_tree("v1")).await;
        user.delete(VOLUMES, "v1").await;
        user.delete(CLAIMS, "c1").await;
        user.until_gone(VOLUMES, "v1").await;
    }
    "a recycled volume serves again", &[], |user| {
        user.bind(with_policy("v1", "Recycle")).await;
        user.delete(CLAIMS, "c1").await;
        user.create(claim("c2", json!({}))).await;
        user.until_bound("c2").await;
    }
    "the policy of a released volume becomes Delete", &[], |user| {
        user.bind(plain("v1")).await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
        let policy = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
        user.patch(VOLUMES, "v1", policy).await;
        user.until_gone(VOLUMES, "v1").await;
    }
    "the policy of a bound volume changes", &[], |user| {
        user.bind(in_tree("v1")).await;
        let policy = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
        user.patch(VOLUMES, "v1", policy).await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
    }
    "a pod keeps its claim", &[], |user| {
        user.bind(plain("v1")).await;
        user.create(pod("p1", "c1")).await;
        user.delete(CLAIMS, "c1").await;
        let now = json!({"gracePeriodSeconds": 0});
        user.send(Method::DELETE, &path("pods", "p1"), now).await;
        user.until_phase(VOLUMES, "v1", "Released").await;
    }
    "a claim is deleted and made again while its volume is deleted", &[], |user| {
        user.bind(in_tree("v1")).await;
        user.delete(CLAIMS, "c1").await;
        user.create(claim("c1", json!({}))).await;
        user.until_gone(VOLUMES, "v1").await;
        user.create(plain("v2")).await;
        user.until_bound("c1").await;
    }
    "a deletion fails at first", &[], |user| {
        user.bind(in_tree("v1")).await;
        user.assets.fail(2);
        user.delete(CLAIMS, "c1").await;
        user.until_gone(VOLUMES, "v1").await;
    }
    "a recycling fails at first", &[], |user| {
        user.bind(with_policy("v1", "Recycle")).await;
        user.assets.fail(2);
        user.delete(CLAIMS, "c1").await;
        user.create(claim("c2", json!({}))).await;
        user.until_bound("c2").await;
    }
    "no plugin deletes a released volume", &[], |user| {
        user.bind(provisioned_by("v1", "kubernetes.io/gone")).await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Failed").await;
    }
    "a volume has an unknown policy", &[], |user| {
        user.bind(plain("v1")).await;
        let policy = json!({"spec": {"persistentVolumeReclaimPolicy": "Unknown"}});
        user.overwrite(VOLUMES, "v1", policy).await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Failed").await;
    }
    "a pod still uses the claim of a recycled volume", &[], |user| {
        user.bind(with_policy("v1", "Recycle")).await;
        user.create(pod("p1", "c1")).await;
        // The leader learns of claims before it learns of pods.
        pass(SETTLED).await;
        user.remove(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
        // Until then the volume would be scrubbed, were it not for the pod.
        pass(SETTLED).await;
        user.send(Method::DELETE, &path("pods", "p1"), json!({"gracePeriodSeconds": 0})).await;
        user.create(claim("c2", json!({}))).await;
        user.until_bound("c2").await;
    }
}
