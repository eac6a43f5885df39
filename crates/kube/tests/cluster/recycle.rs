//! Volumes are scrubbed by pods and offered again, and only those that are nobody's.

use std::path::PathBuf;
use std::time::Duration;

use bindery_controller::{Plugin as _, PluginError, Port as _, Purpose, Settings};
use bindery_core::{Lookup, Volume};
use bindery_kit::Logged;
use bindery_kube::plugins::{HostPath, Recycler, RecyclerSettings};
use bindery_kube::{ApiPort, Events};
use bindery_sim::{FaultRule, Verb};
use serde_json::{Value, json};
use tracing::level_filters::LevelFilter;

use crate::reclaim::{bound_to, policy};
use crate::world::{World, claim, volume, with};

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
    HostPath::new(world.client(), root, Some(recycler.unwrap()))
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

/// Whether a pod may be scheduled.
fn is_open(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty)
}

/// Has the pod that scrubs a volume succeed, where it may run.
fn scrub(world: &World, volume: &str) {
    if let Some(pod) = recycler(world, volume).filter(is_open)
        && pod["status"]["phase"] != "Succeeded"
    {
        world.sim.put(with(pod, json!({"status": {"phase": "Succeeded"}})));
    }
}

/// How many pods were let run.
fn opened(world: &World) -> usize {
    let requests = world.sim.requests();
    let opened = requests
        .iter()
        .filter(|request| (request.verb, &*request.resource, request.code) == (Verb::Patch, "pods", 200));
    opened.count()
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
    assert!(is_open(&pod), "{pod}");
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
    let root = tempfile::tempdir().unwrap();
    let asset = root.path().join("v1");
    std::fs::create_dir(&asset).unwrap();
    let plugin = recycling(&world, told(&world), Some(root.path().to_owned()));
    let on_disk = json!({"spec": {"hostPath": {"path": asset}}});
    world.add(with(left_by("c1", "v1"), on_disk.clone()));
    let decided = decided(&world, "v1").await;
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

/// The volume as a leader has decided to recycle it.
async fn decided(world: &World, name: &str) -> Volume {
    let port = ApiPort::new(world.client(), world.clock(), told(world));
    let Lookup::Found(decided) = port.read_volume(&name.into(), Purpose::Engine).await else {
        panic!("{name} was added");
    };
    Volume::clone(&decided)
}

/// A leader stands still before one of its requests. The next one scrubs the volume, and offers and binds it
/// again.
async fn stand_still_at(request: FaultRule, is_next_there: bool, goes_on_early: bool) {
    let story = format!("{request:?}, next leader there: {is_next_there}, goes on early: {goes_on_early}");
    let world = with_recycler();
    world.add(with(left_by("c1", "v1"), json!({"status": {"phase": "Released"}})));
    let (frozen, decided) = (recycling(&world, told(&world), None), decided(&world, "v1").await);
    // So that the next leader does not recycle it yet.
    world.add(pod_with("c1"));
    let early = is_next_there.then(|| world.start());
    world.settle().await;
    world.sim.faults().add(request.delay(Duration::from_secs(55)));
    let frozen = tokio::spawn(async move { frozen.recycle(&decided).await });
    world.until("the first leader stands still", || world.sim.faults().pending() == 0).await;
    let next = early.unwrap_or_else(|| world.start());
    world.sim.remove("pods", Some("default"), "user");
    if goes_on_early {
        world.until("the first leader goes on", || frozen.is_finished()).await;
    }
    let is_offered = || {
        scrub(&world, "v1");
        world.phases("", "v1").1 == "Available"
    };
    world.until("the volume is offered again", is_offered).await;
    world.add(claim("c2"));
    world.until("it is bound again", || world.phases("c2", "v1").0 == "Bound").await;
    assert_eq!(frozen.is_finished(), goes_on_early, "{story}");
    let scrubbed = opened(&world);
    let ended = frozen.await.expect("it does not panic");
    assert!(ended.is_err(), "{ended:?}: {story}");
    world.settle().await;
    world.assert_bound("c2", "v1");
    assert_eq!((opened(&world), recycler(&world, "v1")), (scrubbed, None), "{story}");
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stands_still_at_any_request_scrubs_nothing_of_the_next_claim() {
    for (is_next_there, goes_on_early) in [(false, false), (true, false), (false, true), (true, true)] {
        for request in [
            FaultRule::new("create", "pods"),
            // Its second look, after the pod was created.
            FaultRule::new("get", "persistentvolumes").nth(2),
            FaultRule::new("patch", "pods"),
        ] {
            stand_still_at(request, is_next_there, goes_on_early).await;
        }
    }
}

/// Nothing is recycled any more, so nothing else would meet that pod.
#[tokio::test(start_paused = true)]
async fn a_gated_pod_of_a_dead_leader_is_removed_before_its_volume_is_bound() {
    let world = with_recycler();
    world.add(with(left_by("c1", "v1"), json!({"status": {"phase": "Released"}})));
    let (dead, decided) = (recycling(&world, told(&world), None), decided(&world, "v1").await);
    world.sim.faults().add(FaultRule::new("patch", "pods").delay(Duration::from_secs(55)));
    let dead = tokio::spawn(async move { dead.recycle(&decided).await });
    world.until("the leader stands still", || world.sim.faults().pending() == 0).await;
    dead.abort();
    assert!(recycler(&world, "v1").is_some_and(|pod| !is_open(&pod)));
    world.add(with(
        pod_with("another"),
        json!({"metadata": {"name": "bystander"}, "spec": {"nodeName": null}}),
    ));
    // A person offers it with its data.
    world.sim.put(volume("v1"));
    world.add(claim("c2"));
    let next = world.start();
    let is_bound = || {
        let is_bound = world.phases("c2", "v1").1 == "Bound";
        assert!(!is_bound || recycler(&world, "v1").is_none());
        is_bound
    };
    world.until("it is bound again", is_bound).await;
    assert!(world.sim.object("pods", Some("default"), "bystander").is_some());
    next.stop().await;
}
