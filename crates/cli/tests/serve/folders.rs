//! Folders of hostPath volumes, on a real API server.

use std::fs;

use bindery_cluster::{Cluster, Manager, is_bound, is_event, is_in_phase, provisioning_in};
use bindery_kit::json;
use serde_json::json;
use tempfile::TempDir;

/// The volume that was made by hand looks like one that Bindery provisioned for a claim that is gone.
#[tokio::test]
async fn given_a_volume_by_hand_with_anothers_path_the_data_stay() {
    let cluster = Cluster::start(Manager::ProtectionAlone).await;
    let root = TempDir::new().unwrap();
    let mut replica = cluster.replica_with("first", &[&provisioning_in(root.path())]);
    cluster.create_class("folders").await;
    cluster.create_claim_of("folders", "c", None).await;
    let claim = cluster.until_claim("c", is_bound).await;
    let owner = claim.spec.unwrap().volume_name.unwrap();
    let folder = root.path().join(&owner);
    fs::write(folder.join("data"), "data").unwrap();

    let by_hand = json::volume(
        "by-hand",
        json!({
            "metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "kubernetes.io/host-path"}},
            "spec": {
                "claimRef": {"namespace": "default", "name": "gone", "uid": "gone"},
                "hostPath": {"path": folder},
                "persistentVolumeReclaimPolicy": "Delete",
            },
        }),
    );
    cluster.create(&by_hand, "").await.unwrap();
    cluster.until_event(is_event("by-hand", "VolumeFailedDelete")).await;
    cluster.until_volume("by-hand", is_in_phase("Failed")).await;
    cluster.until_volume(&owner, is_in_phase("Bound")).await;
    assert_eq!(fs::read_to_string(folder.join("data")).unwrap(), "data");

    // With policy Delete it would stay Terminating.
    let path = "/api/v1/persistentvolumes/by-hand";
    cluster.delete(path).await.unwrap();
    cluster.patch(path, &json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})).await.unwrap();
    cluster.until_no_volume("by-hand").await;
    // The folder goes with its own volume.
    cluster.delete_claim("c").await;
    cluster.until_no_volume(&owner).await;
    assert!(!folder.exists(), "{}", replica.log());
    replica.terminate().await;
}
