//! The cluster of a playground: the simulator on a socket, and a binder.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use bindery_controller::{Binder, Configuration, Journal, Parts, Plugin, Settings};
use bindery_core::Engine;
use bindery_kube::plugins::{HostPath, Nfs, Recycler, RecyclerSettings};
use bindery_kube::watch::{self, WatchLimits};
use bindery_kube::{ApiClient, ApiPort, Events, Template, system_clock};
use bindery_policy::Chain;
use bindery_sim::{Clock, RequestLog, Sim, SimOptions};
use bindery_store::Store;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::example::Example;
use crate::manifest;
use crate::objects::{self, Resource, Title};

/// Name of the one node.
const NODE: &str = "playground";
/// Most time until a volume of an example is available: two requests within this process.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(10);

/// A running cluster.
pub(super) struct Cluster {
    client: kube::Client,
    stop_binder: CancellationToken,
    stop_server: CancellationToken,
    binder: JoinHandle<()>,
    server: JoinHandle<std::io::Result<()>>,
}

impl Cluster {
    /// Serves an empty cluster on the socket, in which `engine` decides. Provisioned volumes are folders in
    /// `volumes`, and nothing outside of it is deleted.
    pub(super) async fn start(
        listener: TcpListener,
        engine: Arc<dyn Engine>,
        policies: Arc<Chain>,
        volumes: &Path,
        journal: Option<Arc<dyn Journal>>,
    ) -> Result<Self> {
        let sim = Sim::new(SimOptions { clock: Clock::Real, log: RequestLog::Off, ..SimOptions::default() });
        let client = kube::Client::new(sim.service(), "default");
        let node = objects::create(&client, Resource::Node, &node()).await;
        node.map_err(|why| anyhow!("the node {NODE}: {why}"))?;
        let (stop_binder, stop_server) = (CancellationToken::new(), CancellationToken::new());
        let stopped = stop_server.clone().cancelled_owned();
        let server = tokio::spawn(sim.serve(listener, stopped));
        let api_client = ApiClient::from(client.clone());
        let (events, event_worker) = Events::new(api_client.clone());
        let binder = Arc::new(Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: ApiPort::new(api_client.clone(), system_clock(), events.clone())
                .declaring(policies.declared()),
            engine,
            configuration: Configuration {
                plugins: Arc::new(plugins(&api_client, &events, volumes)?.into_iter().collect()),
                policies,
                ..Configuration::default()
            },
            settings: Settings::default(),
            journal,
        }));
        let stop = stop_binder.clone();
        let binder = tokio::spawn(async move {
            let event_worker = tokio::spawn(event_worker.run());
            let watches =
                watch::run(api_client, binder.intake().clone(), WatchLimits::default(), stop.clone());
            tokio::join!(watches, binder.run(stop));
            events.flush().await;
            event_worker.abort();
        });
        Ok(Self { client, stop_binder, stop_server, binder, server })
    }

    /// Creates the objects of examples through the API, as `kubectl apply` does.
    pub(super) async fn create(&self, examples: &[&Example]) -> Result<()> {
        for example in examples {
            let mut objects = Vec::new();
            for (file, text) in example.files {
                for manifest in manifest::parse(file, text)? {
                    let resource =
                        Resource::of(&manifest.object).with_context(|| format!("{file}: an unknown kind"))?;
                    objects.push((resource, manifest.object));
                }
            }
            // A claim that comes before its volumes are available gets the first of them, not the best.
            objects.sort_by_key(|(resource, _)| *resource);
            for (resource, object) in objects {
                let created = objects::create(&self.client, resource, &object).await;
                created.map_err(|why| anyhow!("example {}: {}: {why}", example.name, Title(&object)))?;
                if resource == Resource::Volume {
                    self.until_available(object["metadata"]["name"].as_str().unwrap_or_default()).await?;
                }
            }
        }
        Ok(())
    }

    async fn until_available(&self, volume: &str) -> Result<()> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "PersistentVolume"));
        let volumes: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let is_decided = |object: Option<&DynamicObject>| {
            object.is_some_and(|volume| {
                !matches!(volume.data["status"]["phase"].as_str(), None | Some("" | "Pending"))
            })
        };
        let decided = await_condition(volumes, volume, is_decided);
        tokio::time::timeout(SETTLE_TIME_MAX, decided)
            .await
            .with_context(|| {
                format!("the volume {volume:?} does not become available: does the engine decide?")
            })?
            .with_context(|| format!("the volume {volume:?} cannot be watched"))?;
        Ok(())
    }

    /// Stops the binder after the decisions in flight, then the server after the requests in flight.
    pub(super) async fn stop(self) -> Result<()> {
        self.stop_binder.cancel();
        self.binder.await.context("the binder has failed")?;
        self.stop_server.cancel();
        self.server.await.context("the server has failed")?.context("the server has failed")
    }
}

/// hostPath with its folder, and the recyclers, whose pods no kubelet runs here.
fn plugins(client: &ApiClient, events: &Events, volumes: &Path) -> Result<[Arc<dyn Plugin<Template>>; 2]> {
    let recycler =
        |settings| Recycler::new(client.clone(), system_clock(), events.clone(), settings).map(Some);
    let host_path =
        HostPath::new(client.clone(), Some(volumes.to_owned()), recycler(RecyclerSettings::host_path())?);
    let nfs = Nfs::new(recycler(RecyclerSettings::nfs())?);
    Ok([Arc::new(host_path), Arc::new(nfs)])
}

fn node() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}},
        "status": {"conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "Playground",
            "message": "there is no kubelet: pods stay where they are",
        }]},
    })
}
