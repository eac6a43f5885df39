//! Mode steer: Bindery reserves the volumes of steered claims, and upstream's binder binds them.

use bindery_controller::Mode;
use bindery_core::ClaimKey;
use bindery_core::steer::{CHOICE, RESERVED_FOR, steering_key};
use bindery_invariants::Rule;
use bindery_kit::json::{claim, merged, volume};
use bindery_kit::{Larger, SameZone, ZONE, policy};
use bindery_policy::Chain;
use http::Method;
use serde_json::{Value, json};

use super::{plain, provisioned_by};
use crate::user::{CLAIMS, DRIVER, User, VOLUMES, path};

scenarios! {
    "a steered claim gets the larger volume that its policy prefers", &[], in Steer, with larger, |user| {
        user.apply(plain("v1")).await;
        user.apply(sized("v2", "5Gi")).await;
        until_available(user).await;
        user.create(steered("c1", json!({}))).await;
        until_volume(user, "c1", "v2").await;
    }
    "a steered claim waits for a volume of its zone", &[], in Steer, with same_zone, |user| {
        user.apply(in_zone("v1", "b")).await;
        user.create(steered("c1", in_a())).await;
        user.until_waits("c1").await;
        user.apply(in_zone("v2", "a")).await;
        until_volume(user, "c1", "v2").await;
    }
    "steered claims and one that is not share volumes", &[], in Steer, |user| {
        for number in 1..=3 {
            user.apply(lost_if_released(&format!("v{number}"))).await;
        }
        user.create(steered("c1", json!({}))).await;
        user.create(claim("c2", json!({}))).await;
        user.create(steered("c3", json!({}))).await;
        for number in 1..=3 {
            user.until_bound(&format!("c{number}")).await;
        }
    }
    "two steered claims want one volume", &[], in Steer, |user| {
        user.create(steered("c1", json!({}))).await;
        user.create(steered("c2", json!({}))).await;
        user.apply(lost_if_released("v1")).await;
        user.until_phase(VOLUMES, "v1", "Bound").await;
    }
    "a steered claim is made again while its volume is reserved", &[], in Steer, |user| {
        user.apply(lost_if_released("v1")).await;
        user.apply(lost_if_released("v2")).await;
        reserve_without_upstream(user, "c1").await;
        user.delete(CLAIMS, "c1").await;
        user.create(steered("c1", json!({}))).await;
        user.turn_upstream(true);
        user.until_bound("c1").await;
    }
    "a steered claim is deleted while its volume is reserved", &[], in Steer, |user| {
        user.apply(lost_if_released("v1")).await;
        reserve_without_upstream(user, "c1").await;
        user.delete(CLAIMS, "c1").await;
        user.create(steered("c2", json!({}))).await;
        user.turn_upstream(true);
        user.until_bound("c2").await;
    }
    "choices of an earlier leader are finished", &[], in Steer, with larger, |user| {
        for (volume, size) in [("v1", "1Gi"), ("v2", "1Gi"), ("v3", "5Gi"), ("v4", "5Gi")] {
            user.apply(sized(volume, size)).await;
            // The earlier leader chose no other.
            user.until_phase(VOLUMES, volume, "Available").await;
        }
        user.create(chosen(user, "c1", "v1", "")).await;
        user.create(chosen(user, "c2", "v2", "")).await;
        reserve_as_earlier_leader(user, "c2", "v2").await;
        until_volume(user, "c1", "v1").await;
        until_volume(user, "c2", "v2").await;
    }
    "choices of an earlier leader are withdrawn", &[], in Steer, with same_zone, |user| {
        for (volume, zone) in [("v1", "b"), ("v2", "a"), ("v3", "a"), ("v4", "a"), ("v5", "a")] {
            user.apply(in_zone(volume, zone)).await;
        }
        // Rejected, gone, and withdrawn already.
        user.create(merged(chosen(user, "c1", "v1", ""), in_a())).await;
        user.create(merged(chosen(user, "c2", "v5", ""), in_a())).await;
        user.create(merged(chosen(user, "c3", "v4", " withdrawn"), in_a())).await;
        user.delete(VOLUMES, "v5").await;
        for claim in ["c1", "c2", "c3"] {
            user.until_bound(claim).await;
        }
    }
    "a reserved volume is taken for another claim", &[], in Steer, |user| {
        user.apply(lost_if_released("v1")).await;
        reserve_without_upstream(user, "c1").await;
        user.patch(VOLUMES, "v1", json!({"spec": {"claimRef": {"name": "c2"}}})).await;
        user.apply(lost_if_released("v2")).await;
        user.create(claim("c2", json!({}))).await;
        user.turn_upstream(true);
        until_volume(user, "c2", "v1").await;
        until_volume(user, "c1", "v2").await;
    }
    "a volume is reserved by a person in the same moment", &[], in Steer, |user| {
        user.create(steered("c1", json!({}))).await;
        user.until_waits("c1").await;
        user.apply(lost_if_released("v1")).await;
        user.patch(VOLUMES, "v1", json!({"spec": {"claimRef": by_name("c2")}})).await;
        user.create(claim("c2", json!({}))).await;
        until_volume(user, "c2", "v1").await;
        user.apply(lost_if_released("v2")).await;
        until_volume(user, "c1", "v2").await;
    }
    "a reserved volume is deleted", &[], in Steer, |user| {
        user.apply(plain("v1")).await;
        reserve_without_upstream(user, "c1").await;
        user.delete(VOLUMES, "v1").await;
        user.apply(plain("v2")).await;
        user.turn_upstream(true);
        until_volume(user, "c1", "v2").await;
    }
    "a reservation is freed by a person", &[], in Steer, |user| {
        user.apply(plain("v1")).await;
        reserve_without_upstream(user, "c1").await;
        user.patch(VOLUMES, "v1", json!({"spec": {"claimRef": null}})).await;
        user.turn_upstream(true);
        user.until_bound("c1").await;
    }
    // The other modes do not remove the annotation of a reservation that was carried out.
    "replicas observe, steer and observe again", &[Rule::SteeringEnds], in Observe, |user| {
        user.apply(plain("v1")).await;
        user.create(claim("c1", json!({}))).await;
        user.until_bound("c1").await;
        user.switch(Mode::Steer).await;
        user.apply(plain("v2")).await;
        user.create(steered("c2", json!({}))).await;
        user.until_bound("c2").await;
        user.switch(Mode::Observe).await;
        user.apply(plain("v3")).await;
        user.create(steered("c3", json!({}))).await;
        user.until_waits("c3").await;
        user.create(claim("c4", json!({}))).await;
        user.until_bound("c4").await;
    }
    "replicas are told to observe while a volume is reserved", &[], in Steer, |user| {
        user.apply(plain("v1")).await;
        reserve_without_upstream(user, "c1").await;
        user.switch(Mode::Observe).await;
        user.turn_upstream(true);
        user.until_bound("c1").await;
        user.switch(Mode::Steer).await;
    }
    "replicas steer, and bind themselves after that", &[Rule::SteeringEnds], in Steer, |user| {
        user.apply(plain("v1")).await;
        user.create(steered("c1", json!({}))).await;
        user.until_bound("c1").await;
        user.apply(plain("v2")).await;
        reserve_without_upstream(user, "c2").await;
        user.switch(Mode::Own).await;
        user.until_bound("c2").await;
        user.apply(plain("v3")).await;
        user.create(steered("c3", json!({}))).await;
        user.until_bound("c3").await;
    }
}

fn larger() -> Chain {
    Chain::new(vec![policy("larger", Larger { zone: None })])
}

fn same_zone() -> Chain {
    Chain::new(vec![policy("same-zone", SameZone)])
}

fn sized(name: &str, size: &str) -> Value {
    volume(name, json!({"spec": {"capacity": {"storage": size}}}))
}

fn in_zone(name: &str, zone: &str) -> Value {
    volume(name, json!({"metadata": {"labels": {ZONE: zone}}}))
}

fn in_a() -> Value {
    json!({"metadata": {"labels": {ZONE: "a"}}})
}

/// A volume that its provisioner deletes if upstream releases it.
fn lost_if_released(name: &str) -> Value {
    provisioned_by(name, DRIVER)
}

/// A claim that steering has reached as it was created.
fn steered(name: &str, change: Value) -> Value {
    let key = steering_key(&ClaimKey::new("default", name)).expect("the name fits");
    let needed = json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
    merged(claim(name, json!({"spec": {"selector": needed}})), change)
}

/// A steered claim with a choice that an earlier leader has made.
fn chosen(user: &User, name: &str, volume: &str, end: &str) -> Value {
    let uid = user.object(VOLUMES, volume)["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    steered(name, json!({"metadata": {"annotations": {CHOICE: format!("{volume} {uid}{end}")}}}))
}

fn by_name(claim: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": claim})
}

/// Reserves the volume for the claim, as the last write of an earlier leader.
async fn reserve_as_earlier_leader(user: &User, claim: &str, volume: &str) {
    let uid = user.object(CLAIMS, claim)["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let annotations = json!({RESERVED_FOR: format!("default/{claim} {uid}")});
    let change = json!({"metadata": {"annotations": annotations}, "spec": {"claimRef": by_name(claim)}});
    user.send(Method::PATCH, &(path(VOLUMES, volume) + "?fieldManager=bindery"), change).await;
}

/// Waits until upstream's binder has noticed every volume.
async fn until_available(user: &User) {
    let is_noticed = |volume: Value| volume["status"]["phase"] != "Pending";
    let are_noticed = |user: &User| user.timeline.sim.objects(VOLUMES).into_iter().all(is_noticed);
    user.until("every volume has its phase", are_noticed).await;
}

/// Creates a steered claim while upstream's binder is off, and waits until a volume is reserved for it.
async fn reserve_without_upstream(user: &User, claim: &str) {
    until_available(user).await;
    user.turn_upstream(false);
    user.create(steered(claim, json!({}))).await;
    let is_reserved = |user: &User| {
        let volumes = user.timeline.sim.objects(VOLUMES).into_iter();
        let mut names = volumes.map(|volume| volume["spec"]["claimRef"]["name"].clone());
        names.any(|name| name == claim)
    };
    user.until(&format!("a volume is reserved for {claim}"), is_reserved).await;
}

async fn until_volume(user: &User, claim: &str, volume: &str) {
    user.until_bound(claim).await;
    let has = |user: &User| user.object(CLAIMS, claim)["spec"]["volumeName"] == volume;
    user.until(&format!("claim {claim} has volume {volume}"), has).await;
}
