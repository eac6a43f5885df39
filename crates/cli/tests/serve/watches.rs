//! Watches whose connections die silently, on a real API server.

use std::sync::Arc;
use std::time::Duration;

use bindery_cluster::{
    Cluster, Manager, NoFaults, PATIENCE, Proxy, Replica, Request, RequestFault, in_time, is_bound_to,
};
use bindery_controller::{Binder, Configuration, Parts, Settings};
use bindery_core::Version;
use bindery_engine::DefaultEngine;
use bindery_kit::json;
use bindery_kube::watch::{self, WatchLimits};
use bindery_kube::{ApiClient, ApiPort, Events, system_clock};
use bindery_store::{Kind, Store};
use futures::StreamExt as _;
use http::StatusCode;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Shorter than the time between bookmarks, so that idle watches end by these limits too.
const LIMITS: WatchLimits = WatchLimits {
    answer: Duration::from_secs(1),
    silence: Duration::from_secs(2),
    silence_without_bookmarks: Duration::from_secs(2),
};
/// Pairs that the leader binds before it dies.
const PAIRS: usize = 20;

/// Path of the watch of a kind.
fn path(kind: Kind) -> &'static str {
    match kind {
        Kind::Volume => "/api/v1/persistentvolumes",
        Kind::Claim => "/api/v1/persistentvolumeclaims",
        Kind::Class => "/apis/storage.k8s.io/v1/storageclasses",
        Kind::Pod => "/api/v1/pods",
        Kind::Node => "/api/v1/nodes",
        Kind::Namespace => "/api/v1/namespaces",
    }
}

/// An object of a kind.
fn object(kind: Kind, name: &str) -> Value {
    match kind {
        Kind::Volume => json::volume(name, json!({})),
        Kind::Claim => json::claim(name, json!({})),
        Kind::Class => json::class(name, "vendor.example/csi", json!({})),
        Kind::Pod => json::pod(name, json!({})),
        Kind::Node => json::node(name),
        Kind::Namespace => json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
    }
}

/// A cluster, and watches through a proxy.
struct Scene {
    cluster: Cluster,
    proxy: Proxy,
    binder: Binder<ApiPort>,
    created: usize,
}

impl Scene {
    async fn new() -> Self {
        let cluster = Cluster::start(Manager::ProtectionAlone).await;
        let proxy = cluster.proxy().await;
        let kubeconfig = Kubeconfig::read_from(proxy.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let client = ApiClient::from(Client::try_from(config).unwrap());
        let binder = Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: ApiPort::new(client.clone(), system_clock(), Events::new(client.clone()).0),
            engine: Arc::new(DefaultEngine),
            configuration: Configuration::default(),
            settings: Settings { watches_namespaces: true, ..Settings::default() },
            journal: None,
        });
        let watches = watch::run(client, binder.intake().clone(), LIMITS, CancellationToken::new());
        tokio::spawn(watches);
        Self { cluster, proxy, binder, created: 0 }
    }

    /// Creates an object; returns its version.
    async fn create(&mut self, kind: Kind) -> Version {
        self.created += 1;
        let object = object(kind, &format!("o{}", self.created));
        let created = self.cluster.create(&object, "").await.unwrap();
        Version::from(created["metadata"]["resourceVersion"].as_str().unwrap())
    }

    async fn until_reached(&self, kind: Kind, version: &Version) {
        let reached = self.binder.intake().freshness().until_reached(kind, version);
        assert!(tokio::time::timeout(PATIENCE, reached).await.is_ok(), "{kind} does not reach {version:?}");
    }

    /// Kills the watches of these kinds: open ones stay silent, and new ones are not answered until each kind
    /// has given up on one and asks again. Then their watches must be open again. Meanwhile the kinds may be
    /// listed.
    async fn kill_watches(&mut self, dead: &[Kind]) {
        let (sender, mut unanswered) = mpsc::unbounded_channel();
        let kinds = dead.to_vec();
        self.proxy.set_faults(move |request: &Request| {
            let kind = kinds.iter().find(|kind| request.is_watch() && request.path == path(**kind));
            let Some(kind) = kind else { return RequestFault::None };
            let _ = sender.send(*kind);
            RequestFault::Delay(Duration::from_secs(3_600))
        });
        dead.iter().for_each(|kind| self.proxy.stall_watches_of(path(*kind)));
        for kind in Kind::ALL.into_iter().filter(|kind| !dead.contains(kind)) {
            let version = self.create(kind).await;
            self.until_reached(kind, &version).await;
        }
        let given_up = async {
            let mut counts = [0; Kind::ALL.len()];
            while dead.iter().any(|kind| counts[*kind as usize] < 2) {
                counts[unanswered.recv().await.expect("the faults stay") as usize] += 1;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, given_up).await.is_ok(), "{dead:?} are not watched again");
        self.proxy.set_faults(NoFaults);
        for kind in dead {
            let version = self.create(*kind).await;
            self.until_reached(*kind, &version).await;
        }
    }
}

#[tokio::test]
async fn dead_watches_of_one_kind_or_of_all_are_replaced() {
    let mut scene = Scene::new().await;
    for kind in Kind::ALL {
        let version = scene.create(kind).await;
        scene.until_reached(kind, &version).await;
    }
    scene.kill_watches(&Kind::ALL).await;
    for kind in Kind::ALL {
        scene.kill_watches(&[kind]).await;
    }
}

/// Waits until this claim is bound; returns the names of claims that were Lost until then.
async fn lost_until_bound(client: Client, last: String) -> Vec<String> {
    let claims = watcher(Api::<PersistentVolumeClaim>::all(client), watcher::Config::default());
    let mut claims = std::pin::pin!(claims.applied_objects());
    let mut lost = Vec::new();
    loop {
        let claim = claims.next().await.unwrap().unwrap();
        let (name, status) = (claim.metadata.name.unwrap(), claim.status.unwrap());
        match status.phase.as_deref() {
            Some("Lost") => lost.push(name),
            Some("Bound") if name == last => return lost,
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_follower_with_a_dead_watch_of_volumes_takes_over_without_lost_claims() {
    let cluster = Cluster::start(Manager::ProtectionAlone).await;
    let proxy = cluster.proxy().await;
    let mut leader = cluster.replica("leader");
    leader.until_leading().await;
    let mut follower = Replica::behind(&proxy, "follower", &[]);
    follower.until_listed().await;
    proxy.stall_watches_of(path(Kind::Volume));
    let lost = tokio::spawn(lost_until_bound(cluster.client.clone(), "last".to_owned()));
    for pair in 0..PAIRS {
        cluster.create_volume(&format!("v{pair}"), "1Gi").await;
        cluster.create_claim_with(&format!("c{pair}"), json!({"volumeName": format!("v{pair}")})).await;
    }
    for pair in 0..PAIRS {
        cluster.until_claim(&format!("c{pair}"), is_bound_to(&format!("v{pair}"))).await;
    }
    let tells_age = async |follower: &Replica| {
        let (status, told) = follower.probe("/readyz?verbose").await;
        assert_eq!(status, StatusCode::OK, "a silent watch fails a check: {told}");
        let (age, _) = told.split_once("PersistentVolume ")?.1.split_once(" s ago")?;
        (age.parse::<u64>().unwrap() > 3).then_some(())
    };
    follower.until("it tells how long its watch is silent", tells_age).await;
    leader.signal(Signal::KILL);
    leader.wait().await;
    follower.until_leading().await;
    cluster.create_volume("last", "1Gi").await;
    cluster.create_claim_with("last", json!({"volumeName": "last"})).await;
    cluster.until_claim("last", is_bound_to("last")).await;
    let lost = in_time("the last claim is bound", lost).await.unwrap();
    assert_eq!(lost, Vec::<String>::new(), "{}", follower.log());
    cluster.check_pairs(PAIRS + 1).await;
}
