//! Deleting and scrubbing on a real API server; data of live claims is left alone.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bindery_cluster::{
    Cluster, Manager, in_time, is_bound, is_bound_to, is_event, is_in_phase, provisioning_in,
};
use bindery_controller::{Plugin as _, PluginError, Port as _, Purpose};
use bindery_core::{Lookup, Volume};
use bindery_kube::plugins::{HostPath, Recycler, RecyclerSettings};
use bindery_kube::{ApiPort, Events, system_clock};
use http::{Method, Request, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::client::Body;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

#[tokio::test]
async fn a_folder_of_a_bound_volume_is_not_deleted_for_another_volume() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let folder = TempDir::new().unwrap();
    let _replica = cluster.replica_with("first", &[&provisioning_in(folder.path())]);
    cluster.create_class("made").await;
    cluster.create_claim_of("made", "kept", None).await;
    let kept = cluster.until_claim("kept", is_bound).await.spec.unwrap().volume_name.unwrap();
    let data = folder.path().join(&kept).join("data");
    fs::write(&data, "dear").unwrap();

    let spec = json!({
        "persistentVolumeReclaimPolicy": "Delete",
        "hostPath": {"path": folder.path().join(&kept)},
        "claimRef": {"namespace": "default", "name": "gone", "uid": "gone"},
    });
    cluster.create_volume_with("by-hand", spec).await;
    cluster.until_event(is_event("by-hand", "VolumeFailedDelete")).await;
    assert_eq!(fs::read_to_string(&data).unwrap(), "dear");

    // Nor for its own volume, while the other one names it.
    cluster.delete_claim("kept").await;
    cluster.until_event(is_event(&kept, "VolumeFailedDelete")).await;
    assert_eq!(fs::read_to_string(&data).unwrap(), "dear");
    cluster.volumes.delete("by-hand", &DeleteParams::default()).await.unwrap();
    cluster.until_no_volume(&kept).await;
    assert!(!folder.path().join(&kept).exists());
}

/// Stops a leader before it sends a certain request.
#[derive(Clone)]
struct Stop {
    method: Method,
    path: String,
    /// How many of these requests are sent before the leader stops.
    passes: Arc<Semaphore>,
    has_stopped: Arc<Semaphore>,
    goes_on: Arc<Semaphore>,
    /// Whether this leader has opened the gate of a pod.
    has_opened: Arc<AtomicBool>,
}

impl Stop {
    fn at(method: Method, path: &str, passes: usize) -> Self {
        Self {
            method,
            path: path.to_owned(),
            passes: Arc::new(Semaphore::new(passes)),
            has_stopped: Arc::new(Semaphore::new(0)),
            goes_on: Arc::new(Semaphore::new(0)),
            has_opened: Arc::default(),
        }
    }

    /// A client that stops at that request.
    fn client(&self, client: &Client) -> Client {
        let (stop, client) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (stop, client) = (stop.clone(), client.clone());
            async move {
                let is_patch = request.method() == Method::PATCH;
                if *request.method() == stop.method && request.uri().path().ends_with(&stop.path) {
                    match stop.passes.try_acquire() {
                        Ok(pass) => pass.forget(),
                        Err(_) => {
                            stop.has_stopped.add_permits(1);
                            stop.goes_on.acquire().await.unwrap().forget();
                        }
                    }
                }
                let answer = client.send(request).await?;
                if is_patch && answer.status() == StatusCode::OK {
                    stop.has_opened.store(true, Ordering::Relaxed);
                }
                Ok::<_, kube::Error>(answer)
            }
        });
        Client::new(service, "default")
    }
}

/// A leader that recycles a volume.
struct Leader {
    stop: Stop,
    recycling: JoinHandle<Result<(), PluginError>>,
}

impl Leader {
    /// Starts to recycle, and waits until the leader has stopped.
    async fn start(client: &Client, volume: &str, stop: Stop) -> Self {
        let client = stop.client(client);
        let (events, _) = Events::new(client.clone());
        let port = ApiPort::new(client.clone(), system_clock(), events.clone());
        let Lookup::Found(decided) = port.read_volume(&volume.into(), Purpose::Guard).await else {
            panic!("{volume} is there")
        };
        let settings = RecyclerSettings::host_path();
        let recycler = Recycler::new(client.clone(), system_clock(), events, settings).unwrap();
        let plugin = HostPath::new(client, None, Some(recycler));
        let recycling = tokio::spawn(async move { plugin.recycle(&Volume::clone(&decided)).await });
        in_time("it stops", stop.has_stopped.acquire()).await.unwrap().forget();
        Self { stop, recycling }
    }
}

/// Each leader stops before another request. The next one scrubs the volumes and binds them again.
#[tokio::test]
async fn leaders_that_stop_while_recycling_scrub_nothing_of_later_claims() {
    const VOLUME: &str = "/persistentvolumes/";
    let stops = [
        ("created-late", Stop::at(Method::POST, "/pods", 0)),
        // The decision reads the volume once, and the plugin its source.
        ("read-late", Stop::at(Method::GET, &format!("{VOLUME}read-late"), 2)),
        ("opened-late", Stop::at(Method::PATCH, "/pods/recycler-for-opened-late", 0)),
    ];
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let client = cluster.client.clone();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut first = cluster.replica("first");
    for (name, _) in &stops {
        let spec = json!({"storageClassName": name, "persistentVolumeReclaimPolicy": "Recycle"});
        cluster.create_volume_with(name, spec).await;
        cluster.create_claim_of(name, name, None).await;
        cluster.until_claim(name, is_bound_to(name)).await;
    }
    first.terminate().await;
    let mut leaders = Vec::new();
    for (name, stop) in stops {
        cluster.delete_claim(name).await;
        cluster.until_no_claim(name).await;
        // As Bindery, so that it is not a foreign write.
        let bindery = PatchParams { field_manager: Some("bindery".to_owned()), ..PatchParams::default() };
        let released = Patch::Merge(json!({"status": {"phase": "Released"}}));
        cluster.volumes.patch_status(name, &bindery, &released).await.unwrap();
        leaders.push((name, Leader::start(&client, name, stop).await));
    }

    let _next = cluster.replica("next");
    for (name, _) in &leaders {
        let pod = format!("recycler-for-{name}");
        scrub(&pods, &pod).await;
        cluster.until_volume(name, is_in_phase("Available")).await;
        cluster.create_claim_of(name, &format!("next-{name}"), None).await;
        cluster.until_claim(&format!("next-{name}"), is_bound_to(name)).await;
    }
    for (name, leader) in leaders {
        leader.stop.goes_on.add_permits(1);
        let ended = in_time("it goes on", leader.recycling).await.unwrap();
        assert!(ended.is_err(), "{name}: {ended:?}");
        assert!(!leader.stop.has_opened.load(Ordering::Relaxed), "{name}");
        assert!(pods.get_opt(&format!("recycler-for-{name}")).await.unwrap().is_none(), "{name}");
    }
}

/// Waits until the gate of a pod is open, and sets its phase, as a kubelet would.
async fn scrub(pods: &Api<Pod>, name: &str) {
    let is_open = |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.spec.as_ref()).is_some_and(|spec| spec.scheduling_gates.is_none())
    };
    let open = await_condition(pods.clone(), name, is_open);
    in_time("the gate of a pod is opened", open).await.unwrap();
    let succeeded = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    pods.patch_status(name, &PatchParams::default(), &succeeded).await.unwrap();
}
