//! Volumes are released, deleted and provisioned.

use std::path::PathBuf;

use bindery_core::ClaimKey;
use bindery_kit::json;
use bindery_kube::plugins::HostPath;
use bindery_sim::FaultRule;
use bindery_store::{Delivery, ObjectKey};
use serde_json::{Value, json};

use crate::simulated::{Cluster, claim, merged, volume};

/// A cluster whose binder makes and deletes folders below `root`.
fn with_host_path(root: impl Into<PathBuf>) -> Cluster {
    let cluster = Cluster::new();
    let plugin = HostPath::new(cluster.client(), Some(root.into()), None);
    cluster.with_plugin(plugin)
}

pub(crate) fn bound_to(volume: Value, claim: &str) -> Value {
    let reference = json!({"namespace": "default", "name": claim, "uid": format!("uid-{claim}")});
    merged(volume, json!({"spec": {"claimRef": reference}, "status": {"phase": "Bound"}}))
}

fn bound_with(claim: Value, volume: &str) -> Value {
    merged(
        claim,
        json!({
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": volume},
            "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}},
        }),
    )
}

pub(crate) fn policy(volume: Value, policy: &str) -> Value {
    merged(volume, json!({"spec": {"persistentVolumeReclaimPolicy": policy}}))
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_not_released_when_only_the_cache_lacks_its_claim() {
    let cluster = with_host_path("/nonexistent");
    cluster.add(policy(bound_to(volume("v1"), "c1"), "Delete"));
    cluster.add(bound_with(claim("c1"), "v1"));
    let running = cluster.settled().await;
    let gone = ObjectKey::Claim(ClaimKey::new("default", "c1"));
    running.binder.intake().deliver(Delivery::Gone(gone));
    cluster.settle().await;
    cluster.assert_bound("c1", "v1");
    assert_eq!(cluster.writes(), [""; 0]);
    running.stop().await;
}

/// Adds a class of the hostPath plugin, and a claim `c1` of it.
fn add_claim_of_host_path(cluster: &Cluster) {
    let immediate = json!({"volumeBindingMode": "Immediate"});
    cluster.add(json::class("local", "kubernetes.io/host-path", immediate));
    cluster.add(merged(claim("c1"), json!({"spec": {"storageClassName": "local"}})));
}

#[tokio::test(start_paused = true)]
async fn provisioning_and_deletion_are_tried_again_after_failures() {
    let root = tempfile::tempdir().unwrap();
    let cluster = with_host_path(root.path());
    add_claim_of_host_path(&cluster);
    // The plugin reads the class before it makes the folder, and lists volumes before it deletes it.
    cluster.sim.faults().add(FaultRule::new("get", "storageclasses"));
    let running = cluster.settled().await;
    cluster.assert_bound("c1", "pvc-uid-c1");
    let volume = cluster.volume("pvc-uid-c1");
    let finalizers = volume["metadata"]["finalizers"].as_array().unwrap();
    assert!(finalizers.contains(&json!("kubernetes.io/pv-controller")));
    let provisioner = &volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"];
    assert_eq!(provisioner, "kubernetes.io/host-path");
    let folder = root.path().join("pvc-uid-c1");
    assert!(folder.is_dir());
    cluster.sim.faults().add(FaultRule::new("list", "persistentvolumes").times(2));
    cluster.sim.remove("persistentvolumeclaims", Some("default"), "c1");
    cluster.settle().await;
    assert_eq!(cluster.volume("pvc-uid-c1"), Value::Null);
    assert!(!folder.exists());
    assert_eq!(cluster.sim.faults().pending(), 0);
    running.events.flush().await;
    let events = cluster.sim.objects("events");
    let failed = |reason: &str| events.iter().any(|event| event["reason"] == reason);
    assert!(failed("ProvisioningFailed") && failed("VolumeFailedDelete"), "{events:?}");
    running.stop().await;
}

/// A volume that was created by hand is to be deleted, and names the folder of another volume.
#[tokio::test(start_paused = true)]
async fn a_folder_that_another_volume_names_is_not_deleted() {
    let root = tempfile::tempdir().unwrap();
    let cluster = with_host_path(root.path());
    add_claim_of_host_path(&cluster);
    let running = cluster.start();
    let folder = root.path().join("pvc-uid-c1");
    cluster.until("c1 is bound", || cluster.phases("c1", "").0 == "Bound").await;
    std::fs::write(folder.join("data"), "data").unwrap();
    let by_hand = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "kubernetes.io/host-path"}},
        "spec": {"hostPath": {"path": folder}},
    });
    cluster.add(merged(policy(bound_to(volume("by-hand"), "gone"), "Delete"), by_hand));
    cluster.until("it cannot be deleted", || cluster.phases("", "by-hand").1 == "Failed").await;
    running.events.flush().await;
    let events = cluster.sim.objects("events");
    let is_told = |event: &Value| event["reason"] == "VolumeFailedDelete";
    assert!(events.iter().any(|event| is_told(event) && event["involvedObject"]["name"] == "by-hand"));
    assert_eq!(std::fs::read_to_string(folder.join("data")).unwrap(), "data");
    // The folder's own volume does not delete it either while the other volume exists.
    cluster.sim.remove("persistentvolumeclaims", Some("default"), "c1");
    cluster.until("it cannot be deleted either", || cluster.phases("", "pvc-uid-c1").1 == "Failed").await;
    let message = cluster.volume("pvc-uid-c1")["status"]["message"].clone();
    assert!(message.as_str().unwrap().contains("volume \"by-hand\" names"), "{message}");
    assert_eq!(std::fs::read_to_string(folder.join("data")).unwrap(), "data");
    cluster.sim.remove("persistentvolumes", None, "by-hand");
    cluster.until("it is deleted", || cluster.volume("pvc-uid-c1") == Value::Null).await;
    assert!(!folder.exists());
    running.stop().await;
}
