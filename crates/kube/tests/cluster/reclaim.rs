//! Volumes are released and deleted, and only on proof.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bindery_controller::{Order, Plugin, PluginError};
use bindery_core::{ClaimKey, PluginOperation, Text, Volume};
use bindery_kube::Template;
use bindery_kube::plugins::HostPath;
use bindery_store::{Delivery, ObjectKey};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};

use crate::world::{World, claim, volume, with};

/// Deletes and provisions hostPath volumes in its imagination; the first calls fail.
#[derive(Clone, Default)]
struct Imaginary {
    failures: u32,
    calls: Arc<AtomicU32>,
}

impl Imaginary {
    fn outcome<'a, T: Send + 'a>(&self, value: T) -> BoxFuture<'a, Result<T, PluginError>> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let failed = || PluginError::Failed("the disk is busy".into());
        ready(if call < self.failures { Err(failed()) } else { Ok(value) }).boxed()
    }
}

impl Plugin<Template> for Imaginary {
    fn describe(&self) -> bindery_core::Plugin {
        bindery_core::Plugin {
            name: "kubernetes.io/host-path".into(),
            provisions: true,
            deletes: true,
            recycles: false,
            mount_options: false,
        }
    }

    fn supports(&self, volume: &Volume) -> bool {
        &*volume.source == "hostPath"
    }

    fn ready(&self, _: PluginOperation) -> Result<(), Text> {
        Ok(())
    }

    fn provision<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<Template, PluginError>> {
        self.outcome(Template(json!({"spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": order.claim.request.to_string()},
            "hostPath": {"path": format!("/srv/{}", order.name)},
            "persistentVolumeReclaimPolicy": "Delete",
        }})))
    }

    fn discard<'a>(&'a self, _: &'a Template) -> BoxFuture<'a, Result<(), PluginError>> {
        self.outcome(())
    }

    fn delete<'a>(&'a self, _: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        self.outcome(())
    }

    fn recycle<'a>(&'a self, _: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        self.outcome(())
    }
}

pub(crate) fn bound_to(volume: Value, claim: &str) -> Value {
    let reference = json!({"namespace": "default", "name": claim, "uid": format!("uid-{claim}")});
    with(volume, json!({"spec": {"claimRef": reference}, "status": {"phase": "Bound"}}))
}

fn bound_with(claim: Value, volume: &str) -> Value {
    with(
        claim,
        json!({
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": volume},
            "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}},
        }),
    )
}

pub(crate) fn policy(volume: Value, policy: &str) -> Value {
    with(volume, json!({"spec": {"persistentVolumeReclaimPolicy": policy}}))
}

#[tokio::test(start_paused = true)]
async fn a_volume_without_claim_is_released_after_a_live_read() {
    let world = World::new();
    world.add(bound_to(volume("v1"), "c1"));
    world.add(bound_with(claim("c1"), "v1"));
    let running = world.start();
    world.settle().await;
    assert_eq!(world.writes(), [""; 0]);
    world.sim.remove("persistentvolumeclaims", Some("default"), "c1");
    world.settle().await;
    assert_eq!(world.phases("c1", "v1").1, "Released");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_lies_releases_nothing() {
    let world = World::new().with_plugin(Imaginary::default());
    world.add(policy(bound_to(volume("v1"), "c1"), "Delete"));
    world.add(bound_with(claim("c1"), "v1"));
    let running = world.start();
    world.settle().await;
    running.binder.intake().deliver(Delivery::Gone(ObjectKey::Claim(ClaimKey::new("default", "c1"))));
    world.settle().await;
    world.assert_bound("c1", "v1");
    assert_eq!(world.writes(), [""; 0]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_released_volume_is_deleted_as_often_as_it_takes() {
    let plugin = Imaginary { failures: 2, ..Imaginary::default() };
    let world = World::new().with_plugin(plugin.clone());
    world.add(policy(bound_to(volume("v1"), "c1"), "Delete"));
    let running = world.start();
    world.settle().await;
    assert_eq!(world.volume("v1"), Value::Null);
    assert_eq!(plugin.calls.load(Ordering::Relaxed), 3);
    running.events.flush().await;
    let reasons: Vec<Value> =
        world.sim.objects("events").iter().map(|event| event["reason"].clone()).collect();
    assert_eq!(reasons, ["VolumeFailedDelete"]);
    running.stop().await;
}

/// Adds a class of the hostPath plugin, and a claim `c1` of it.
fn add_claim_of_host_path(world: &World) {
    world.add(json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/host-path",
        "volumeBindingMode": "Immediate",
    }));
    world.add(with(claim("c1"), json!({"spec": {"storageClassName": "local"}})));
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_an_in_tree_class_gets_a_volume() {
    let world = World::new().with_plugin(Imaginary { failures: 1, ..Imaginary::default() });
    add_claim_of_host_path(&world);
    let running = world.start();
    world.settle().await;
    world.assert_bound("c1", "pvc-uid-c1");
    let volume = world.volume("pvc-uid-c1");
    let finalizers = volume["metadata"]["finalizers"].as_array().unwrap();
    assert!(finalizers.contains(&json!("kubernetes.io/pv-controller")));
    assert_eq!(
        volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"],
        "kubernetes.io/host-path"
    );
    running.stop().await;
}

/// A volume that was made by hand is to be deleted, and names the folder of another one.
#[tokio::test(start_paused = true)]
async fn a_folder_that_another_volume_has_is_not_deleted() {
    let root = tempfile::tempdir().unwrap();
    let world = World::new();
    let plugin = HostPath::new(world.client(), Some(root.path().to_owned()), None);
    let world = world.with_plugin(plugin);
    add_claim_of_host_path(&world);
    let running = world.start();
    let folder = root.path().join("pvc-uid-c1");
    world.until("c1 is bound", || world.phases("c1", "").0 == "Bound").await;
    std::fs::write(folder.join("data"), "dear").unwrap();
    let by_hand = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "kubernetes.io/host-path"}},
        "spec": {"hostPath": {"path": folder}},
    });
    world.add(with(policy(bound_to(volume("by-hand"), "gone"), "Delete"), by_hand));
    world.until("it cannot be deleted", || world.phases("", "by-hand").1 == "Failed").await;
    assert_eq!(std::fs::read_to_string(folder.join("data")).unwrap(), "dear");
    // Nor is the folder deleted by its own volume while the other one is there.
    world.sim.remove("persistentvolumeclaims", Some("default"), "c1");
    world.until("it cannot be deleted either", || world.phases("", "pvc-uid-c1").1 == "Failed").await;
    let message = world.volume("pvc-uid-c1")["status"]["message"].clone();
    assert!(message.as_str().unwrap().contains("volume \"by-hand\" names"), "{message}");
    assert_eq!(std::fs::read_to_string(folder.join("data")).unwrap(), "dear");
    world.sim.remove("persistentvolumes", None, "by-hand");
    world.until("it is deleted", || world.volume("pvc-uid-c1") == Value::Null).await;
    assert!(!folder.exists());
    running.stop().await;
}
