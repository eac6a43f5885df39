//! The hand-off to an external provisioner: the real csi-provisioner, with a CSI driver of our own.

use bindery_node::world::World;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::stage::{stage, world};

/// The driver's name, which it tells kubelet and its provisioner.
const DRIVER: &str = "csi.bindery.test";

/// Tells the cluster of the driver: its volumes need not be attached to nodes.
async fn describe_driver(world: &World) {
    let drivers: Api<CSIDriver> = Api::all(world.client.clone());
    let driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
        "spec": {"attachRequired": false},
    });
    drivers.patch(DRIVER, &PatchParams::apply("tests"), &Patch::Apply(driver)).await.unwrap();
}

/// Follows a claim of a class with this binding mode from its provisioning to its deletion.
async fn follow(name: &str, mode: &str) {
    let world = world().await;
    describe_driver(&world).await;
    world.create_class(name, DRIVER, mode).await;
    world.create_claim(name, name).await;
    if mode == "WaitForFirstConsumer" {
        world.until_event(name, "WaitForFirstConsumer").await;
        assert_eq!(world.claims.get(name).await.unwrap().spec.unwrap().volume_name, None);
        world.create_writer(name, name, name).await;
    } else {
        world.until_bound(name).await;
        world.create_writer(name, name, name).await;
    }
    let volume_name = world.until_bound(name).await;
    world.until_event(name, "ExternalProvisioning").await;
    world.until_done(name).await;

    let claim = world.claims.get(name).await.unwrap();
    assert_eq!(claim.annotations()["volume.kubernetes.io/storage-provisioner"], DRIVER);
    let volume: PersistentVolume = world.volumes.get(&volume_name).await.unwrap();
    assert_eq!(volume.annotations()["pv.kubernetes.io/provisioned-by"], DRIVER);
    let uid = volume.uid().unwrap();
    let handle = volume.spec.unwrap().csi.unwrap().volume_handle;
    let folder = stage().csi_volume(&handle);
    assert_eq!(std::fs::read_to_string(folder.join("file")).unwrap(), format!("{name}\n"));

    world.delete(&world.pods, name).await;
    world.delete(&world.claims, name).await;
    world.until_gone(&world.volumes, &volume_name, &uid).await;
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_volume_is_provisioned_at_once_used_and_deleted() {
    follow("csi-at-once", "Immediate").await;
}

#[tokio::test]
async fn a_volume_is_provisioned_for_a_scheduled_pod_used_and_deleted() {
    follow("csi-delayed", "WaitForFirstConsumer").await;
}
