//! Volumes are released, deleted and recycled, and only on proof.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bindery_controller::{Order, Plugin, PluginError, Port as _, Purpose, Settings};
use bindery_core::{ClaimKey, Lookup, PluginOperation, Text, Volume};
use bindery_harness::Logged;
use bindery_kube::plugins::{HostPath, Recycler, RecyclerSettings};
use bindery_kube::{ApiPort, Events, Template};
use bindery_sim::Verb;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};
use tracing::level_filters::LevelFilter;

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

fn bound_to(volume: Value, claim: &str) -> Value {
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

fn policy(volume: Value, policy: &str) -> Value {
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
    running.binder.intake().claim_gone(&ClaimKey::new("default", "c1"));
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

#[tokio::test(start_paused = true)]
async fn a_claim_of_an_in_tree_class_gets_a_volume() {
    let world = World::new().with_plugin(Imaginary { failures: 1, ..Imaginary::default() });
    world.add(json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/host-path",
        "volumeBindingMode": "Immediate",
    }));
    world.add(with(claim("c1"), json!({"spec": {"storageClassName": "local"}})));
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

/// A world whose volumes of policy Recycle are scrubbed by pods.
fn with_recycler() -> World {
    let world = World::new();
    let plugin = recycling(&world, told(&world), None);
    world.with_plugin(plugin)
}

/// Events that get to the world's API server.
fn told(world: &World) -> Events {
    let (events, worker) = Events::new(world.client());
    tokio::spawn(worker.run());
    events
}

/// The plugin that scrubs volumes by pods, and deletes them below `root`.
fn recycling(world: &World, events: Events, root: Option<PathBuf>) -> HostPath {
    let recycler = Recycler::new(world.client(), world.clock(), events, RecyclerSettings::host_path());
    HostPath::new(world.client(), root, Some(recycler))
}

/// A volume that is to be scrubbed: the claim that it was for is gone.
fn left_by(claim: &str, name: &str) -> Value {
    let marked = json!({"metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}});
    with(policy(bound_to(volume(name), claim), "Recycle"), marked)
}

/// The pod that scrubs a volume.
fn recycler(world: &World, volume: &str) -> Option<Value> {
    world.sim.object("pods", Some("default"), &format!("recycler-for-{volume}"))
}

/// A pod on a node that uses a claim.
fn pod_with(claim: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "user", "namespace": "default"},
        "spec": {
            "nodeName": "node1",
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_recycler_pod_scrubs_a_volume_that_is_then_free() {
    let world = with_recycler();
    world.add(left_by("c1", "v1"));
    let running = world.start();
    let recycler = || recycler(&world, "v1");
    world.until("a recycler pod is there", || recycler().is_some()).await;
    let pod = recycler().expect("a recycler pod");
    assert_eq!(pod["spec"]["volumes"][0]["hostPath"]["path"], "/srv/v1");
    assert_eq!(pod["spec"]["activeDeadlineSeconds"], 60);
    assert_eq!(world.phases("c1", "v1").1, "Released");
    world.sim.put(with(pod, json!({"status": {"phase": "Succeeded"}})));
    world.settle().await;
    assert_eq!(world.phases("c1", "v1").1, "Available");
    assert_eq!(world.volume("v1")["spec"]["claimRef"], json!(null));
    assert_eq!(world.volume("v1")["metadata"].get("annotations"), None);
    assert_eq!(recycler(), None);
    running.stop().await;
}

/// A leader that stood still between its decision and what it does finds the volume with its next tenant.
#[tokio::test(start_paused = true)]
async fn a_volume_that_was_offered_again_meanwhile_is_neither_scrubbed_nor_deleted() {
    let world = World::new();
    let events = told(&world);
    let root = tempfile::tempdir().unwrap();
    let asset = root.path().join("v1");
    std::fs::create_dir(&asset).unwrap();
    let plugin = recycling(&world, events.clone(), Some(root.path().to_owned()));
    let on_disk = json!({"spec": {"hostPath": {"path": asset}}});
    world.add(with(left_by("c1", "v1"), on_disk.clone()));
    let port = ApiPort::new(world.client(), world.clock(), events);
    let Lookup::Found(decided) = port.read_volume(&"v1".into(), Purpose::Engine).await else {
        panic!("v1 was added");
    };
    world.sim.put(with(bound_to(world.volume("v1"), "c2"), on_disk));
    for done in [plugin.recycle(&decided).await, plugin.delete(&decided).await] {
        let Err(PluginError::Failed(why)) = done else { panic!("{done:?}") };
        assert_eq!(&*why, "volume \"v1\" is no longer the one that its claim has left");
    }
    assert_eq!(self::recycler(&world, "v1"), None);
    assert!(asset.is_dir());
}

/// It may use the volume, for all that is known.
#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_read_keeps_volumes_from_being_scrubbed_and_is_told_of() {
    let log = Logged::from(LevelFilter::WARN);
    let world = with_recycler();
    world.add(left_by("c1", "v1"));
    world.add(with(pod_with("c1"), json!({"spec": {"nodeName": 7}})));
    let running = world.start();
    let looks = || {
        let requests = world.sim.requests();
        requests.iter().filter(|request| request.verb == Verb::Get && request.name == "v1").count()
    };
    world.until("it is looked at again and again", || looks() > 5).await;
    assert_eq!((world.phases("c1", "v1").1.as_str(), recycler(&world, "v1")), ("Released", None));
    let pod = world.sim.object("pods", Some("default"), "user").expect("a pod");
    let uid = pod["metadata"]["uid"].as_str().expect("a UID");
    let log = log.text();
    let told = log.lines().find(|line| line.contains("a pod cannot be read"));
    let is_told = |line: &str| line.contains("object=pod default/user") && line.contains(uid);
    assert!(told.is_some_and(is_told), "no {uid} in {log}");
    // It does use it.
    world.sim.put(pod_with("c1"));
    world.settle().await;
    assert_eq!((world.phases("c1", "v1").1.as_str(), recycler(&world, "v1")), ("Released", None));
    world.sim.remove("pods", Some("default"), "user");
    world.until("the volume is scrubbed", || recycler(&world, "v1").is_some()).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn few_volumes_are_scrubbed_at_a_time_and_each_is_looked_at_when_it_is_its_turn() {
    let most = Settings::default().recycles_max;
    let world = with_recycler();
    let names: Vec<String> = (0..3 * most).map(|number| format!("v{number}")).collect();
    names.iter().for_each(|name| world.add(left_by(&format!("claim-of-{name}"), name)));
    let running = world.start();
    let scrubbed = || names.iter().filter(|name| recycler(&world, name).is_some()).count();
    world.until("volumes are scrubbed", || scrubbed() == most).await;
    let waiting = names.iter().find(|name| recycler(&world, name).is_none()).expect("one that waits");
    world.add(pod_with(&format!("claim-of-{waiting}")));
    let available = || names.iter().filter(|name| world.phases("", name).1 == "Available").count();
    world
        .until("all others are scrubbed", || {
            assert!(scrubbed() <= most, "{} at a time", scrubbed());
            assert_eq!(recycler(&world, waiting), None, "it is used");
            for pod in names.iter().filter_map(|name| recycler(&world, name)) {
                if pod["status"]["phase"] != "Succeeded" {
                    world.sim.put(with(pod, json!({"status": {"phase": "Succeeded"}})));
                }
            }
            available() == names.len() - 1
        })
        .await;
    assert_eq!(world.phases("", waiting).1, "Released");
    running.stop().await;
}
