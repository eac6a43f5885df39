//! Provisioning by an external provisioner: the real csi-provisioner, with a CSI driver for tests.

use bindery_cluster::is_in_phase;
use bindery_node::objects::Objects;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::servers::{DRIVER, KEEP, KEPT_CLASS, objects, servers};

/// Creates the driver's CSIDriver, so that its volumes need not be attached to nodes.
async fn create_driver(objects: &Objects) {
    let drivers: Api<CSIDriver> = Api::all(objects.client.clone());
    let driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
        "spec": {"attachRequired": false},
    });
    drivers.patch(DRIVER, &PatchParams::apply("tests"), &Patch::Apply(driver)).await.unwrap();
}

/// Has a claim with this binding mode provisioned, used and deleted.
async fn provision_use_and_delete(name: &str, mode: &str) {
    let objects = objects().await;
    create_driver(&objects).await;
    objects.create_class(name, DRIVER, mode).await;
    objects.create_claim(name, name).await;
    if mode == "WaitForFirstConsumer" {
        objects.until_event(name, "WaitForFirstConsumer").await;
        assert_eq!(objects.claims.get(name).await.unwrap().spec.unwrap().volume_name, None);
        objects.create_writer(name, name, name).await;
    } else {
        objects.until_bound(name).await;
        objects.create_writer(name, name, name).await;
    }
    let volume_name = objects.until_bound(name).await;
    objects.until_event(name, "ExternalProvisioning").await;
    objects.until_done(name).await;

    let claim = objects.claims.get(name).await.unwrap();
    assert_eq!(claim.annotations()["volume.kubernetes.io/storage-provisioner"], DRIVER);
    let volume: PersistentVolume = objects.volumes.get(&volume_name).await.unwrap();
    assert_eq!(volume.annotations()["pv.kubernetes.io/provisioned-by"], DRIVER);
    let uid = volume.uid().unwrap();
    let handle = volume.spec.unwrap().csi.unwrap().volume_handle;
    let folder = servers().csi_volume(&handle);
    assert_eq!(std::fs::read_to_string(folder.join("file")).unwrap(), format!("{name}\n"));

    objects.delete(&objects.pods, name).await;
    objects.delete(&objects.claims, name).await;
    objects.until_gone(&objects.volumes, &volume_name, &uid).await;
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_volume_is_provisioned_at_once_used_and_deleted() {
    provision_use_and_delete("csi-at-once", "Immediate").await;
}

#[tokio::test]
async fn a_volume_is_provisioned_for_a_scheduled_pod_used_and_deleted() {
    provision_use_and_delete("csi-delayed", "WaitForFirstConsumer").await;
}

#[tokio::test]
async fn a_volume_that_a_reclaimer_keeps_is_deleted_when_a_person_says_so() {
    let objects = objects().await;
    create_driver(&objects).await;
    objects.create_class(KEPT_CLASS, DRIVER, "Immediate").await;
    objects.create_claim(KEPT_CLASS, KEPT_CLASS).await;
    let name = objects.until_bound(KEPT_CLASS).await;
    let patch = async |change| {
        let (parameters, change) = (PatchParams::default(), Patch::Merge(change));
        objects.volumes.patch(&name, &parameters, &change).await.unwrap();
    };
    let label = Patch::Merge(json!({"metadata": {"labels": {KEEP: "true"}}}));
    objects.claims.patch(KEPT_CLASS, &PatchParams::default(), &label).await.unwrap();
    objects.delete(&objects.claims, KEPT_CLASS).await;
    let kept = objects.until(&objects.volumes, &name, is_in_phase("Released")).await;
    let uid = kept.uid().unwrap();
    let noted = kept.annotations()["bindery.dev/reclaim-policy-before"].clone();
    let spec = kept.spec.unwrap();
    assert_eq!(noted, format!("Delete {}", spec.claim_ref.unwrap().uid.unwrap()));
    assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
    let folder = servers().csi_volume(&spec.csi.unwrap().volume_handle);
    assert!(folder.exists());
    // Now the provisioner deletes it.
    patch(json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}})).await;
    objects.until_gone(&objects.volumes, &name, &uid).await;
    assert!(!folder.exists());
}
