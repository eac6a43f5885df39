//! A simulated cluster, and a binder on it.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Binder, Configuration, Parts, Plugin, Plugins, Settings};
use bindery_engine::DefaultEngine;
use bindery_kit::json;
pub(crate) use bindery_kit::json::merged;
use bindery_kube::watch::{self, WatchLimits};
use bindery_kube::{ApiPort, Clock, Events, Template};
use bindery_sim::{LoggedRequest, RequestLog, Sim, SimOptions, Verb};
use bindery_store::Store;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) type ApiBinder = Binder<ApiPort>;

/// A simulated cluster. Its time is virtual: it passes while every task waits.
pub(crate) struct Cluster {
    pub(crate) sim: Sim,
    plugins: Vec<Arc<dyn Plugin<Template>>>,
}

pub(crate) struct Running {
    pub(crate) binder: Arc<ApiBinder>,
    pub(crate) events: Events,
    shutdown: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self {
            sim: Sim::new(SimOptions { log: RequestLog::All, ..SimOptions::default() }),
            plugins: Vec::new(),
        }
    }

    pub(crate) fn with(objects: impl IntoIterator<Item = Value>) -> Self {
        let cluster = Self::new();
        objects.into_iter().for_each(|object| cluster.add(object));
        cluster
    }

    pub(crate) fn with_plugin(mut self, plugin: impl Plugin<Template> + 'static) -> Self {
        self.plugins.push(Arc::new(plugin));
        self
    }

    pub(crate) fn client(&self) -> kube::Client {
        kube::Client::new(self.sim.service(), "default")
    }

    pub(crate) fn clock(&self) -> Clock {
        let start = tokio::time::Instant::now();
        Arc::new(move || 1_767_225_600 + i64::try_from(start.elapsed().as_secs()).unwrap())
    }

    /// Events that are written to the cluster.
    pub(crate) fn events(&self) -> Events {
        let (events, worker) = Events::new(self.client());
        tokio::spawn(worker.run());
        events
    }

    /// Starts a binder, and waits until it has nothing left to do.
    pub(crate) async fn settled(&self) -> Running {
        let running = self.start();
        self.settle().await;
        running
    }

    pub(crate) fn start(&self) -> Running {
        let (client, shutdown) = (self.client(), CancellationToken::new());
        let (events, worker) = Events::new(client.clone());
        let plugins: Plugins<Template> = self.plugins.iter().cloned().collect();
        let binder = Arc::new(Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: ApiPort::new(client.clone(), self.clock(), events.clone()),
            engine: Arc::new(DefaultEngine),
            configuration: Configuration { plugins: Arc::new(plugins), ..Configuration::default() },
            settings: Settings::default(),
            journal: None,
        }));
        let intake = binder.intake().clone();
        let watches = watch::run(client, intake, WatchLimits::default(), shutdown.clone());
        let tasks = vec![
            tokio::spawn(worker.run()),
            tokio::spawn(watches),
            tokio::spawn(Arc::clone(&binder).run(shutdown.clone())),
        ];
        Running { binder, events, shutdown, tasks }
    }

    pub(crate) fn add(&self, object: Value) {
        self.sim.seed([object]).unwrap();
    }

    pub(crate) fn volume(&self, name: &str) -> Value {
        self.sim.object("persistentvolumes", None, name).unwrap_or_default()
    }

    pub(crate) fn claim(&self, name: &str) -> Value {
        self.sim.object("persistentvolumeclaims", Some("default"), name).unwrap_or_default()
    }

    pub(crate) fn phases(&self, claim: &str, volume: &str) -> (String, String) {
        let phase = |object: Value| object["status"]["phase"].as_str().unwrap_or("-").to_owned();
        (phase(self.claim(claim)), phase(self.volume(volume)))
    }

    /// Asserts that claim and volume point at each other and are Bound.
    #[track_caller]
    pub(crate) fn assert_bound(&self, claim: &str, volume: &str) {
        assert_eq!(self.phases(claim, volume), ("Bound".to_owned(), "Bound".to_owned()));
        let (claim, volume) = (self.claim(claim), self.volume(volume));
        assert_eq!(claim["spec"]["volumeName"], volume["metadata"]["name"]);
        assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
        assert_eq!(claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"], "yes");
        assert_eq!(claim["status"]["capacity"], volume["spec"]["capacity"]);
    }

    /// The writes of volumes and claims since the last call, as `VERB RESOURCE[/SUBRESOURCE] NAME CODE`.
    pub(crate) fn writes(&self) -> Vec<String> {
        let is_write = |record: &LoggedRequest| {
            !matches!(record.verb, Verb::Get | Verb::List | Verb::Watch)
                && record.resource.starts_with("persistentvolume")
        };
        let line = |record: LoggedRequest| {
            let slash = if record.subresource.is_empty() { "" } else { "/" };
            format!(
                "{:?} {}{slash}{} {} {}",
                record.verb, record.resource, record.subresource, record.name, record.code
            )
            .to_lowercase()
        };
        self.sim.take_requests().into_iter().filter(is_write).map(line).collect()
    }

    /// Waits until no request has come for a minute of virtual time.
    pub(crate) async fn settle(&self) {
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        let (mut come, mut still) = (self.sim.requests().len(), 0);
        for _ in 0..3_600 {
            seconds.tick().await;
            let now = self.sim.requests().len();
            still = if now == come { still + 1 } else { 0 };
            come = now;
            if still > 60 {
                return;
            }
        }
        panic!("requests still come: {:?}", self.sim.requests().split_off(come.saturating_sub(5)));
    }

    pub(crate) async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        let begin = ticks.tick().await;
        while !holds() {
            assert!(begin.elapsed() < Duration::from_secs(3_600), "not in an hour: {what}");
            ticks.tick().await;
        }
    }
}

impl Running {
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        for task in self.tasks.into_iter().skip(1) {
            task.await.unwrap();
        }
    }
}

/// A volume of 1 GiB, free and Available.
pub(crate) fn volume(name: &str) -> Value {
    let spec = json!({"hostPath": {"path": format!("/srv/{name}")}, "volumeMode": "Filesystem"});
    json::volume(name, json!({"spec": spec, "status": {"phase": "Available"}}))
}

/// A claim for 1 GiB without a class.
pub(crate) fn claim(name: &str) -> Value {
    let spec = json!({"storageClassName": null, "volumeMode": "Filesystem"});
    let metadata = json!({"uid": format!("uid-{name}")});
    json::claim(name, json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}))
}
