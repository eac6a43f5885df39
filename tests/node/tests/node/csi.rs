//! Provisioning by an external provisioner: the real csi-provisioner, with a CSI driver for tests.

use bindery_node::objects::Objects;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::servers::{objects, servers};

const DRIVER: &str = "csi.bindery.test";

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
