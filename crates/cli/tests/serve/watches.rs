//! Watches whose connections die without a word, on a real API server.

use std::sync::Arc;
use std::time::Duration;

use bindery_cluster::{Asked, Before, ControlPlane, Fair, Manager, Programs, Proxy, Weather};
use bindery_controller::{Binder, Facts, Parts, Settings};
use bindery_core::Version;
use bindery_engine::DefaultEngine;
use bindery_kube::watch::{WatchLimits, run_with_limits};
use bindery_kube::{ApiClient, ApiPort, Events, system_clock};
use bindery_store::{Kind, Store};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::world::{PATIENCE, Replica, World, is_bound_to};

/// Shorter than what a server takes between bookmarks, so that idle watches end by them too.
const LIMITS: WatchLimits = WatchLimits {
    answer: Duration::from_secs(1),
    silence: Duration::from_secs(2),
    silence_without_bookmarks: Duration::from_secs(2),
};
/// Claims that the leader binds before it dies.
const PAIRS: usize = 20;

/// Where objects of a kind are watched.
fn path(kind: Kind) -> &'static str {
    match kind {
        Kind::Volume => "/api/v1/persistentvolumes",
        Kind::Claim => "/api/v1/persistentvolumeclaims",
        Kind::Class => "/apis/storage.k8s.io/v1/storageclasses",
        Kind::Pod => "/api/v1/pods",
        Kind::Node => "/api/v1/nodes",
    }
}

/// Where an object of a kind is created, and what it says besides its name.
fn object(kind: Kind) -> (&'static str, Value) {
    let modes = json!(["ReadWriteOnce"]);
    match kind {
        Kind::Volume => {
            let source = json!({"path": "/nonexistent"});
            let capacity = json!({"storage": "1Gi"});
            (path(kind), json!({"spec": {"capacity": capacity, "accessModes": modes, "hostPath": source}}))
        }
        Kind::Claim => {
            let resources = json!({"requests": {"storage": "1Gi"}});
            let spec = json!({"storageClassName": "", "accessModes": modes, "resources": resources});
            ("/api/v1/namespaces/default/persistentvolumeclaims", json!({"spec": spec}))
        }
        Kind::Class => (path(kind), json!({"provisioner": "vendor.example/csi"})),
        Kind::Pod => {
            let spec = json!({"containers": [{"name": "c", "image": "nonexistent"}]});
            ("/api/v1/namespaces/default/pods", json!({"spec": spec}))
        }
        Kind::Node => (path(kind), json!({})),
    }
}

/// Accepts watches of some kinds and never answers them.
struct Unanswered {
    kinds: Vec<Kind>,
    asked: mpsc::UnboundedSender<Kind>,
}

impl Weather for Unanswered {
    fn before(&self, asked: &Asked) -> Before {
        let kind = self.kinds.iter().find(|kind| asked.is_watch() && asked.path == path(**kind));
        let Some(kind) = kind else { return Before::Pass };
        let _ = self.asked.send(*kind);
        Before::Delay(Duration::from_secs(3_600))
    }
}

/// A control plane behind a proxy, and watches through the proxy.
struct Stage {
    client: Client,
    proxy: Proxy,
    binder: Binder<ApiPort>,
    created: usize,
    _plane: ControlPlane,
}

impl Stage {
    async fn new() -> Self {
        let plane =
            ControlPlane::start(Programs::from_env().unwrap(), Manager::ProtectionAlone).await.unwrap();
        let proxy = Proxy::start(&plane).await.unwrap();
        let kubeconfig = Kubeconfig::read_from(proxy.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let client = ApiClient::from(Client::try_from(config).unwrap());
        let binder = Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: ApiPort::new(client.clone(), system_clock(), Events::new(client.clone()).0),
            engine: Arc::new(DefaultEngine),
            facts: Facts::default(),
            settings: Settings::default(),
            journal: None,
        });
        let watches = run_with_limits(client, binder.intake().clone(), LIMITS, CancellationToken::new());
        tokio::spawn(watches);
        Self { client: plane.client().await.unwrap(), proxy, binder, created: 0, _plane: plane }
    }

    /// Creates an object; answers its version.
    async fn create(&mut self, kind: Kind) -> Version {
        self.created += 1;
        let (path, mut object) = object(kind);
        object["metadata"] = json!({"name": format!("o{}", self.created)});
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(object.to_string().into_bytes()).unwrap();
        let created: Value = self.client.request(request).await.unwrap();
        Version::from(created["metadata"]["resourceVersion"].as_str().unwrap())
    }

    async fn until_reached(&self, kind: Kind, version: &Version) {
        let reached = self.binder.intake().freshness().until_reached(kind, version);
        assert!(tokio::time::timeout(PATIENCE, reached).await.is_ok(), "{kind} does not reach {version:?}");
    }

    /// Has the watches of these kinds die: open ones tell nothing more, and new ones are not answered until
    /// each kind has given up on two.
    async fn have_watches_die(&mut self, dead: &[Kind]) {
        let (sender, mut asked) = mpsc::unbounded_channel();
        self.proxy.set_weather(Unanswered { kinds: dead.to_vec(), asked: sender });
        dead.iter().for_each(|kind| self.proxy.stall_watches_of(path(*kind)));
        let mut unheard = Vec::new();
        for kind in Kind::ALL {
            let version = self.create(kind).await;
            if dead.contains(&kind) {
                unheard.push((kind, version));
            } else {
                self.until_reached(kind, &version).await;
            }
        }
        let given_up = async {
            let mut counts = [0; Kind::ALL.len()];
            while dead.iter().any(|kind| counts[*kind as usize] < 3) {
                counts[asked.recv().await.expect("the weather stays") as usize] += 1;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, given_up).await.is_ok(), "{dead:?} are not asked for again");
        for (kind, version) in &unheard {
            assert!(!self.binder.intake().freshness().has_reached(*kind, version), "{kind} is not dead");
        }
        self.proxy.set_weather(Fair);
        for (kind, version) in &unheard {
            self.until_reached(*kind, version).await;
        }
    }
}

#[tokio::test]
async fn dead_watches_of_one_kind_or_of_all_are_noticed_and_replaced() {
    let mut stage = Stage::new().await;
    for kind in Kind::ALL {
        let version = stage.create(kind).await;
        stage.until_reached(kind, &version).await;
    }
    stage.have_watches_die(&Kind::ALL).await;
    for kind in Kind::ALL {
        stage.have_watches_die(&[kind]).await;
    }
}

/// Ends when a claim of this name is bound; answers the names of claims that were Lost until then.
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
async fn a_follower_whose_watch_of_volumes_is_dead_takes_over_and_loses_no_claim() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::ProtectionAlone).await.unwrap();
    let proxy = Proxy::start(&plane).await.unwrap();
    let world = World::new(&plane).await;
    let mut leader = Replica::start(&plane, "leader");
    leader.until_leading().await;
    let mut follower = Replica::start_with(&proxy.kubeconfig(), "follower", &[], &[]);
    follower.until_metrics("bindery_lists_complete 1\n").await;
    proxy.stall_watches_of(path(Kind::Volume));
    let lost = tokio::spawn(lost_until_bound(plane.client().await.unwrap(), "last".to_owned()));
    for pair in 0..PAIRS {
        world.create_volume(&format!("v{pair}"), "1Gi").await;
        world.create_claim_with(&format!("c{pair}"), json!({"volumeName": format!("v{pair}")})).await;
    }
    for pair in 0..PAIRS {
        world.until_claim(&format!("c{pair}"), is_bound_to(&format!("v{pair}"))).await;
    }
    leader.signal(Signal::KILL);
    leader.wait().await;
    follower.until_leading().await;
    world.create_volume("last", "1Gi").await;
    world.create_claim_with("last", json!({"volumeName": "last"})).await;
    world.until_claim("last", is_bound_to("last")).await;
    let lost = tokio::time::timeout(PATIENCE, lost).await.expect("the last claim is bound").unwrap();
    assert_eq!(lost, Vec::<String>::new(), "{}", follower.log());
    world.check_pairs(PAIRS + 1).await;
}
