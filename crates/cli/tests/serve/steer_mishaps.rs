//! Mode steer where something is missing, or is done by somebody else.

use bindery_cluster::{Cluster, Manager, is_bound, is_bound_to, is_event, is_in_phase};
use bindery_core::ClaimKey;
use bindery_core::steer::{CHOICE, steering_key};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::steer::{at_most, bindery, create_steered, is_forgotten, steering_replica};

#[tokio::test]
async fn a_claim_gets_a_volume_once_the_policy_that_rejected_it_is_gone() {
    let cluster = Cluster::start(Manager::Whole).await;
    let (mut replica, _documents) = steering_replica(&cluster, &[at_most(2)]);
    replica.until_leading().await;
    cluster.create_available_volume("large", "5Gi").await;
    let requirement = |n: usize| json!({"key": format!("example.com/{n}"), "operator": "DoesNotExist"});
    let hundred: Vec<_> = (0..100).map(requirement).collect();
    create_steered(&cluster, "c", json!({"selector": {"matchExpressions": hundred}})).await;
    cluster.until_event(is_event("c", "VolumesRejected")).await;

    // Whoever may label volumes goes past the policies: upstream takes a volume that has the label.
    cluster.create_available_volume("labelled", "5Gi").await;
    let key = steering_key(&ClaimKey::new("default", "d")).unwrap();
    let label = Patch::Merge(json!({"metadata": {"labels": {key: ""}}}));
    cluster.volumes.patch("labelled", &PatchParams::default(), &label).await.unwrap();
    create_steered(&cluster, "d", json!({})).await;
    cluster.until_claim("d", is_bound_to("labelled")).await;

    replica.terminate().await;
    let mut replica = cluster.replica_with("second", &["--mode", "steer"]);
    cluster.until_claim("c", is_bound_to("large")).await;
    replica.terminate().await;
}

/// A provisioner that refuses selectors does nothing; the test is one that ignores them.
#[tokio::test]
async fn a_steered_claim_whose_class_has_a_provisioner_gets_one_volume() {
    let mut cluster = Cluster::start(Manager::Whole).await;
    cluster.create_class_with("csi", json!({"provisioner": "csi.example.com"})).await;
    let mut replica = cluster.replica_with("first", &["--mode", "steer"]);
    replica.until_leading().await;
    let of_class = || json!({"storageClassName": "csi"});
    let provision = async |claim: &str, volume: &str| {
        let uid = cluster.claims.get(claim).await.unwrap().uid();
        let claim_ref = json!({"namespace": "default", "name": claim, "uid": uid});
        cluster.create_volume_of("csi", volume, claim_ref).await;
    };
    create_steered(&cluster, "provisioned", of_class()).await;
    cluster.until_event(is_event("provisioned", "ExternalProvisioning")).await;
    provision("provisioned", "made").await;
    let claim = cluster.until_claim("provisioned", is_bound_to("made")).await;
    assert!(!claim.annotations().contains_key(CHOICE), "{claim:?}");

    cluster.create_volume_of("csi", "free", json!(null)).await;
    cluster.until_volume("free", is_in_phase("Available")).await;
    create_steered(&cluster, "reserved", of_class()).await;
    cluster.until_claim("reserved", is_bound_to("free")).await;

    // Both a reservation and a provisioned volume, before upstream sees either.
    cluster.create_volume_of("csi", "second", json!(null)).await;
    cluster.until_volume("second", is_in_phase("Available")).await;
    cluster.plane.set_manager(Manager::WithoutBinder).unwrap();
    create_steered(&cluster, "both", of_class()).await;
    cluster.until_volume("second", |volume| !is_forgotten(volume)).await;
    for command in [&["steer", "status"][..], &["explain", "pvc", "both"]] {
        let (_, output) = bindery(&cluster, command);
        let since = "it is reserved, and waits for upstream's binder since 2";
        assert!(output.contains(since) && output.contains("second"), "{output}");
    }
    let uid = cluster.claims.get("both").await.unwrap().uid();
    let claim_ref = json!({"namespace": "default", "name": "both", "uid": uid});
    cluster.create_volume_of("csi", "twice", claim_ref).await;
    cluster.plane.set_manager(Manager::Whole).unwrap();
    cluster.until_claim("both", is_bound).await;
    cluster.until_volume("second", is_forgotten).await;
    replica.terminate().await;
}
