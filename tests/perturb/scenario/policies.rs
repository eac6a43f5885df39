//! Policies choose the volume of a claim, and say what becomes of it.

use bindery_invariants::Rule;
use bindery_kit::json::{claim, volume};
use bindery_kit::{ByLabel, KEEP, SameZone, ZONE, keeps_labelled, policy, reclaim_rule};
use bindery_policy::{Allowed, Chain, ReclaimRule, Wish};
use serde_json::{Value, json};

use super::{in_tree, plain};
use crate::user::{CLAIMS, User, VOLUMES};

/// Longer than any disturbance, in seconds.
const KEPT: u64 = 1_800;

scenarios! {
    "a reclaimer keeps the volume of a labelled claim", &[], with keeping, |user| {
        user.create(in_tree("v1")).await;
        user.create(labelled("c1", KEEP, "true")).await;
        user.until_bound("c1").await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
    }
    "a person takes a kept volume from a reclaimer", &[], with keeping, |user| {
        user.create(in_tree("v1")).await;
        user.create(labelled("c1", KEEP, "true")).await;
        user.until_bound("c1").await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
        user.patch(VOLUMES, "v1", json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}})).await;
        user.until_gone(VOLUMES, "v1").await;
    }
    "a reclaimer has a volume deleted later", &[], with deleting_later, |user| {
        user.bind(in_tree("v1")).await;
        user.delete(CLAIMS, "c1").await;
        user.until_phase(VOLUMES, "v1", "Released").await;
        user.until_gone(VOLUMES, "v1").await;
    }
    "a reclaimer offers a volume again", &[], with offering_again, |user| {
        user.bind(plain("v1")).await;
        user.delete(CLAIMS, "c1").await;
        user.create(claim("c2", json!({}))).await;
        user.until_bound("c2").await;
    }
    "a reclaimer has a volume recycled", &[], with recycling, |user| {
        user.bind(plain("v1")).await;
        user.delete(CLAIMS, "c1").await;
        user.create(claim("c2", json!({}))).await;
        user.until_bound("c2").await;
    }
    "a policy rejects the smallest volume", &[], with same_zone, |user| {
        user.create(in_zone("v1", "b", "1Gi")).await;
        user.create(in_zone("v2", "a", "5Gi")).await;
        user.create(labelled("c1", ZONE, "a")).await;
        until_claim_has(user, "v2").await;
    }
    "a volume gets the label that a policy wants", &[Rule::NoneWaits], with same_zone, |user| {
        user.create(in_zone("v1", "b", "1Gi")).await;
        user.create(labelled("c1", ZONE, "a")).await;
        user.until_waits("c1").await;
        user.patch(VOLUMES, "v1", json!({"metadata": {"labels": {ZONE: "a"}}})).await;
        until_claim_has(user, "v1").await;
    }
    "a claim gets the label that a policy wants", &[Rule::NoneWaits], with same_zone, |user| {
        user.create(in_zone("v1", "b", "1Gi")).await;
        user.create(labelled("c1", ZONE, "a")).await;
        user.until_waits("c1").await;
        user.patch(CLAIMS, "c1", json!({"metadata": {"labels": {ZONE: "b"}}})).await;
        until_claim_has(user, "v1").await;
    }
}

fn keeping() -> Chain {
    reclaiming(reclaim_rule("keep", keeps_labelled()))
}

fn deleting_later() -> Chain {
    reclaiming(reclaim_rule("later", ByLabel(|_| Ok(Wish::DeleteAfter(KEPT)))))
}

fn offering_again() -> Chain {
    allowed(Allowed::OfferAgain, reclaim_rule("offer", ByLabel(|_| Ok(Wish::OfferAgain))))
}

fn recycling() -> Chain {
    allowed(Allowed::Recycle, reclaim_rule("recycle", ByLabel(|_| Ok(Wish::Recycle))))
}

fn allowed(allowed: Allowed, rule: ReclaimRule) -> Chain {
    reclaiming(ReclaimRule { allow: vec![allowed], ..rule })
}

fn reclaiming(rule: ReclaimRule) -> Chain {
    Chain::default().with_reclaimers(vec![rule])
}

fn same_zone() -> Chain {
    Chain::new(vec![policy("same-zone", SameZone)])
}

fn labelled(name: &str, label: &str, value: &str) -> Value {
    claim(name, json!({"metadata": {"labels": {label: value}}}))
}

fn in_zone(name: &str, zone: &str, size: &str) -> Value {
    let labels = json!({ZONE: zone});
    volume(name, json!({"metadata": {"labels": labels}, "spec": {"capacity": {"storage": size}}}))
}

async fn until_claim_has(user: &User, volume: &str) {
    let has = |user: &User| user.object(CLAIMS, "c1")["spec"]["volumeName"] == volume;
    user.until(&format!("claim c1 has volume {volume}"), has).await;
    user.until_bound("c1").await;
}
