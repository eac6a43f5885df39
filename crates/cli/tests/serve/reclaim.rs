//! What is on volumes is deleted and scrubbed on a real API server, and only where it is nobody's.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bindery_cluster::{ControlPlane, Manager, Programs};
use bindery_controller::{Plugin as _, PluginError, Port as _, Purpose};
use bindery_core::{Lookup, Volume};
use bindery_kube::plugins::{HostPath, Recycler, RecyclerSettings};
use bindery_kube::{ApiPort, Events, system_clock};
use http::{Method, Request, StatusCode};
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::client::Body;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::world::{PATIENCE, Replica, World, is_bound, is_bound_to, is_told, phase, provisioning_in};

/// A volume that was made by hand is to be deleted, and names the folder of another one.
#[tokio::test]
async fn a_folder_of_a_bound_volume_is_not_deleted_for_another_volume_that_names_it() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::WithoutBinder).await.unwrap();
    let (world, folder) = (World::new(&plane).await, TempDir::new().unwrap());
    let volumes: Api<PersistentVolume> = Api::all(plane.client().await.unwrap());
    let _replica = Replica::start_with(&plane.kubeconfig(), "first", &provisioning_in(folder.path()), &[]);
    world.create_class("made").await;
    world.create_claim_of("made", "kept", None).await;
    let kept = world.until_claim("kept", is_bound).await.spec.unwrap().volume_name.unwrap();
    let data = folder.path().join(&kept).join("data");
    fs::write(&data, "dear").unwrap();

    let spec = json!({
        "persistentVolumeReclaimPolicy": "Delete",
        "hostPath": {"path": folder.path().join(&kept)},
        "claimRef": {"namespace": "default", "name": "gone", "uid": "gone"},
    });
    world.create_volume_with("by-hand", spec).await;
    world.until_event(is_told("by-hand", "VolumeFailedDelete")).await;
    assert_eq!(fs::read_to_string(&data).unwrap(), "dear");

    // Nor is it deleted by its own volume while the other one is there.
    world.delete_claim("kept").await;
    world.until_event(is_told(&kept, "VolumeFailedDelete")).await;
    assert_eq!(fs::read_to_string(&data).unwrap(), "dear");
    volumes.delete("by-hand", &DeleteParams::default()).await.unwrap();
    world.until_no_volume(&kept).await;
    assert!(!folder.path().join(&kept).exists());
}

/// A request of a leader, which stands still before it sends it.
#[derive(Clone)]
struct Stop {
    method: Method,
    path: String,
    /// How many requests of that kind are sent before.
    passes: Arc<Semaphore>,
    stands_still: Arc<Semaphore>,
    goes_on: Arc<Semaphore>,
    /// Whether a pod of this leader was let run.
    has_opened: Arc<AtomicBool>,
}

impl Stop {
    fn at(method: Method, path: &str, passes: usize) -> Self {
        Self {
            method,
            path: path.to_owned(),
            passes: Arc::new(Semaphore::new(passes)),
            stands_still: Arc::new(Semaphore::new(0)),
            goes_on: Arc::new(Semaphore::new(0)),
            has_opened: Arc::default(),
        }
    }

    /// A client that stands still at that request.
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
                            stop.stands_still.add_permits(1);
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

/// A leader that begins to recycle a volume.
struct Leader {
    stop: Stop,
    recycling: JoinHandle<Result<(), PluginError>>,
}

impl Leader {
    /// Ends when it stands still.
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
        let stands_still = tokio::time::timeout(PATIENCE, stop.stands_still.acquire()).await;
        stands_still.expect("it comes to that request").unwrap().forget();
        Self { stop, recycling }
    }
}

/// Each leader stands still before another request. The next one scrubs the volumes, and offers and binds
/// them again.
#[tokio::test]
async fn leaders_that_stand_still_while_they_recycle_scrub_nothing_of_the_next_claims() {
    const VOLUME: &str = "/persistentvolumes/";
    let stops = [
        ("created-late", Stop::at(Method::POST, "/pods", 0)),
        // The decision reads it once, and the plugin its source.
        ("read-late", Stop::at(Method::GET, &format!("{VOLUME}read-late"), 2)),
        ("opened-late", Stop::at(Method::PATCH, "/pods/recycler-for-opened-late", 0)),
    ];
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::WithoutBinder).await.unwrap();
    let (world, client) = (World::new(&plane).await, plane.client().await.unwrap());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let mut first = Replica::start(&plane, "first");
    for (name, _) in &stops {
        let spec = json!({"storageClassName": name, "persistentVolumeReclaimPolicy": "Recycle"});
        world.create_volume_with(name, spec).await;
        world.create_claim_of(name, name, None).await;
        world.until_claim(name, is_bound_to(name)).await;
    }
    first.signal(Signal::TERM);
    assert!(first.wait().await.success());
    let mut leaders = Vec::new();
    for (name, stop) in stops {
        world.delete_claim(name).await;
        world.until_no_claim(name).await;
        // As Bindery writes it, so that nobody takes it for another binder's.
        let bindery = PatchParams { field_manager: Some("bindery".to_owned()), ..PatchParams::default() };
        let released = Patch::Merge(json!({"status": {"phase": "Released"}}));
        volumes.patch_status(name, &bindery, &released).await.unwrap();
        leaders.push((name, Leader::start(&client, name, stop).await));
    }

    let _next = Replica::start(&plane, "next");
    for (name, _) in &leaders {
        let pod = format!("recycler-for-{name}");
        scrub(&pods, &pod).await;
        world.until_volume(name, |volume| phase(volume) == "Available").await;
        world.create_claim_of(name, &format!("next-{name}"), None).await;
        world.until_claim(&format!("next-{name}"), is_bound_to(name)).await;
    }
    for (name, leader) in leaders {
        leader.stop.goes_on.add_permits(1);
        let ended = tokio::time::timeout(PATIENCE, leader.recycling).await.expect("it goes on").unwrap();
        assert!(ended.is_err(), "{name}: {ended:?}");
        assert!(!leader.stop.has_opened.load(Ordering::Relaxed), "{name}");
        assert!(pods.get_opt(&format!("recycler-for-{name}")).await.unwrap().is_none(), "{name}");
    }
}

/// Waits until a pod may run, and has it succeed: there is no kubelet.
async fn scrub(pods: &Api<Pod>, name: &str) {
    let is_open = |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.spec.as_ref()).is_some_and(|spec| spec.scheduling_gates.is_none())
    };
    let open = await_condition(pods.clone(), name, is_open);
    tokio::time::timeout(PATIENCE, open).await.expect("a pod is let run").unwrap();
    let succeeded = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    pods.patch_status(name, &PatchParams::default(), &succeeded).await.unwrap();
}
