//! Released volumes are scrubbed by pods, and become Available.

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
use crate::simulated::{Cluster, claim, merged, volume};

/// A cluster whose binder scrubs volumes of policy Recycle.
fn with_recycler() -> Cluster {
    let cluster = Cluster::new();
    let plugin = recycling(&cluster, cluster.events(), None);
    cluster.with_plugin(plugin)
}

/// The plugin that scrubs volumes by pods, and deletes them below `root`.
fn recycling(cluster: &Cluster, events: Events, root: Option<PathBuf>) -> HostPath {
    let recycler = Recycler::new(cluster.client(), cluster.clock(), events, RecyclerSettings::host_path());
    HostPath::new(cluster.client(), root, Some(recycler.unwrap()))
}

/// A volume to be scrubbed, whose claim is gone.
fn left_by(claim: &str, name: &str) -> Value {
    let marked = json!({"metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}});
    merged(policy(bound_to(volume(name), claim), "Recycle"), marked)
}

fn recycler(cluster: &Cluster, volume: &str) -> Option<Value> {
    cluster.sim.object("pods", Some("default"), &format!("recycler-for-{volume}"))
}

fn is_open(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty)
}

/// Lets the pod that scrubs a volume succeed, if it may run.
fn scrub(cluster: &Cluster, volume: &str) {
    if let Some(pod) = recycler(cluster, volume).filter(is_open)
        && pod["status"]["phase"] != "Succeeded"
    {
        cluster.sim.put(merged(pod, json!({"status": {"phase": "Succeeded"}})));
    }
}

/// Number of pods whose gates were removed.
fn opened(cluster: &Cluster) -> usize {
    let requests = cluster.sim.requests();
    let opened = requests
        .iter()
        .filter(|request| (request.verb, &*request.resource, request.code) == (Verb::Patch, "pods", 200));
    opened.count()
}

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
async fn a_recycler_pod_scrubs_a_volume_that_becomes_available() {
    let cluster = with_recycler();
    cluster.add(left_by("c1", "v1"));
    let running = cluster.start();
    let recycler = || recycler(&cluster, "v1");
    cluster.until("a recycler pod is there", || recycler().is_some()).await;
    let pod = recycler().expect("a recycler pod");
    assert_eq!(pod["spec"]["volumes"][0]["hostPath"]["path"], "/srv/v1");
    assert_eq!(pod["spec"]["activeDeadlineSeconds"], 60);
    assert!(is_open(&pod), "{pod}");
    assert_eq!(cluster.phases("c1", "v1").1, "Released");
    cluster.sim.put(merged(pod, json!({"status": {"phase": "Succeeded"}})));
    cluster.settle().await;
    assert_eq!(cluster.phases("c1", "v1").1, "Available");
    assert_eq!(cluster.volume("v1")["spec"]["claimRef"], json!(null));
    assert_eq!(cluster.volume("v1")["metadata"].get("annotations"), None);
    assert_eq!(recycler(), None);
    running.stop().await;
}

/// A leader was suspended between its decision and the plugin's work, and the volume has its next claim.
#[tokio::test(start_paused = true)]
async fn a_volume_with_its_next_claim_is_neither_scrubbed_nor_deleted() {
    let cluster = Cluster::new();
    let root = tempfile::tempdir().unwrap();
    let asset = root.path().join("v1");
    std::fs::create_dir(&asset).unwrap();
    let plugin = recycling(&cluster, cluster.events(), Some(root.path().to_owned()));
    let on_disk = json!({"spec": {"hostPath": {"path": asset}}});
    cluster.add(merged(left_by("c1", "v1"), on_disk.clone()));
    let decided = decided(&cluster, "v1").await;
    cluster.sim.put(merged(bound_to(cluster.volume("v1"), "c2"), on_disk));
    for done in [plugin.recycle(&decided).await, plugin.delete(&decided).await] {
        let Err(PluginError::Failed(why)) = done else { panic!("{done:?}") };
        assert_eq!(&*why, "volume \"v1\" is no longer the one that its claim has left");
    }
    assert_eq!(self::recycler(&cluster, "v1"), None);
    assert!(asset.is_dir());
}

/// Such a pod may use the volume.
#[tokio::test(start_paused = true)]
async fn an_unreadable_pod_is_logged_and_keeps_volumes_from_scrubbing() {
    let log = Logged::from(LevelFilter::WARN);
    let cluster = with_recycler();
    cluster.add(left_by("c1", "v1"));
    cluster.add(merged(pod_with("c1"), json!({"spec": {"nodeName": 7}})));
    let running = cluster.start();
    let looks = || {
        let requests = cluster.sim.requests();
        requests.iter().filter(|request| request.verb == Verb::Get && request.name == "v1").count()
    };
    cluster.until("it is read again and again", || looks() > 5).await;
    assert_eq!((cluster.phases("c1", "v1").1.as_str(), recycler(&cluster, "v1")), ("Released", None));
    let pod = cluster.sim.object("pods", Some("default"), "user").expect("a pod");
    let uid = pod["metadata"]["uid"].as_str().expect("a UID");
    let log = log.text();
    let told = log.lines().find(|line| line.contains("a pod cannot be read"));
    let is_told = |line: &str| line.contains("object=pod default/user") && line.contains(uid);
    assert!(told.is_some_and(is_told), "no {uid} in {log}");
    // The pod becomes readable, and uses the volume.
    cluster.sim.put(pod_with("c1"));
    cluster.settle().await;
    assert_eq!((cluster.phases("c1", "v1").1.as_str(), recycler(&cluster, "v1")), ("Released", None));
    cluster.sim.remove("pods", Some("default"), "user");
    cluster.until("the volume is scrubbed", || recycler(&cluster, "v1").is_some()).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn few_volumes_are_scrubbed_at_a_time_and_none_that_is_used() {
    let most = Settings::default().recycles_max;
    let cluster = with_recycler();
    let names: Vec<String> = (0..3 * most).map(|number| format!("v{number}")).collect();
    names.iter().for_each(|name| cluster.add(left_by(&format!("claim-of-{name}"), name)));
    let running = cluster.start();
    let scrubbed = || names.iter().filter(|name| recycler(&cluster, name).is_some()).count();
    cluster.until("volumes are scrubbed", || scrubbed() == most).await;
    let waiting = names.iter().find(|name| recycler(&cluster, name).is_none()).expect("one that waits");
    cluster.add(pod_with(&format!("claim-of-{waiting}")));
    let available = || names.iter().filter(|name| cluster.phases("", name).1 == "Available").count();
    cluster
        .until("all others are scrubbed", || {
            assert!(scrubbed() <= most, "{} at a time", scrubbed());
            assert_eq!(recycler(&cluster, waiting), None, "it is used");
            for pod in names.iter().filter_map(|name| recycler(&cluster, name)) {
                if pod["status"]["phase"] != "Succeeded" {
                    cluster.sim.put(merged(pod, json!({"status": {"phase": "Succeeded"}})));
                }
            }
            available() == names.len() - 1
        })
        .await;
    assert_eq!(cluster.phases("", waiting).1, "Released");
    running.stop().await;
}

/// The volume of a leader's decision to recycle it.
async fn decided(cluster: &Cluster, name: &str) -> Volume {
    let port = ApiPort::new(cluster.client(), cluster.clock(), cluster.events());
    let Lookup::Found(decided) = port.read_volume(&name.into(), Purpose::Engine).await else {
        panic!("{name} was added");
    };
    Volume::clone(&decided)
}

/// A leader is suspended at one of its requests. The next leader scrubs the volume and binds it again.
async fn suspend_at(request: FaultRule, is_next_there: bool, continues_early: bool) {
    let story =
        format!("{request:?}, next leader there: {is_next_there}, continues early: {continues_early}");
    let cluster = with_recycler();
    cluster.add(merged(left_by("c1", "v1"), json!({"status": {"phase": "Released"}})));
    let (suspended, decided) = (recycling(&cluster, cluster.events(), None), decided(&cluster, "v1").await);
    // This pod keeps the next leader from recycling the volume yet.
    cluster.add(pod_with("c1"));
    let early = is_next_there.then(|| cluster.start());
    cluster.settle().await;
    cluster.sim.faults().add(request.delay(Duration::from_secs(55)));
    let suspended = tokio::spawn(async move { suspended.recycle(&decided).await });
    cluster.until("the first leader is suspended", || cluster.sim.faults().pending() == 0).await;
    let next = early.unwrap_or_else(|| cluster.start());
    cluster.sim.remove("pods", Some("default"), "user");
    if continues_early {
        cluster.until("the first leader continues", || suspended.is_finished()).await;
    }
    let is_offered = || {
        scrub(&cluster, "v1");
        cluster.phases("", "v1").1 == "Available"
    };
    cluster.until("the volume is offered again", is_offered).await;
    cluster.add(claim("c2"));
    cluster.until("it is bound again", || cluster.phases("c2", "v1").0 == "Bound").await;
    assert_eq!(suspended.is_finished(), continues_early, "{story}");
    let scrubbed = opened(&cluster);
    let ended = suspended.await.expect("it does not panic");
    assert!(ended.is_err(), "{ended:?}: {story}");
    cluster.settle().await;
    cluster.assert_bound("c2", "v1");
    assert_eq!((opened(&cluster), recycler(&cluster, "v1")), (scrubbed, None), "{story}");
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_leader_scrubs_nothing_of_the_next_claim() {
    for (is_next_there, continues_early) in [(false, false), (true, false), (false, true), (true, true)] {
        for request in [
            FaultRule::new("create", "pods"),
            // Its second read, after the pod was created.
            FaultRule::new("get", "persistentvolumes").nth(2),
            FaultRule::new("patch", "pods"),
        ] {
            suspend_at(request, is_next_there, continues_early).await;
        }
    }
}

/// The volume needs no recycling any more, so nothing else would find the pod.
#[tokio::test(start_paused = true)]
async fn a_dead_leaders_gated_pod_is_removed_before_its_volume_is_bound() {
    let cluster = with_recycler();
    cluster.add(merged(left_by("c1", "v1"), json!({"status": {"phase": "Released"}})));
    let (dead, decided) = (recycling(&cluster, cluster.events(), None), decided(&cluster, "v1").await);
    cluster.sim.faults().add(FaultRule::new("patch", "pods").delay(Duration::from_secs(55)));
    let dead = tokio::spawn(async move { dead.recycle(&decided).await });
    cluster.until("the leader is suspended", || cluster.sim.faults().pending() == 0).await;
    dead.abort();
    assert!(recycler(&cluster, "v1").is_some_and(|pod| !is_open(&pod)));
    cluster.add(merged(
        pod_with("another"),
        json!({"metadata": {"name": "bystander"}, "spec": {"nodeName": null}}),
    ));
    // An operator makes the volume available with its data.
    cluster.sim.put(volume("v1"));
    cluster.add(claim("c2"));
    cluster.sim.faults().add(FaultRule::new("delete", "pods").times(3));
    let next = cluster.start();
    let is_bound = || {
        let is_bound = cluster.phases("c2", "v1").1 == "Bound";
        assert!(!is_bound || recycler(&cluster, "v1").is_none());
        is_bound
    };
    cluster.until("it is bound again", is_bound).await;
    assert!(cluster.sim.object("pods", Some("default"), "bystander").is_some());
    next.stop().await;
}
