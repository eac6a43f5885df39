//! A real cluster, and replicas of `bindery serve` in it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use bindery_cluster::{ControlPlane, Server, snapshot};
use bindery_invariants::Snapshot;
use bytes::Bytes;
use futures::StreamExt as _;
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use rustix::process::{Pid, Signal};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long anything may take before the test gives up: a slow machine takes seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The volumes and claims of a cluster.
pub(crate) struct World {
    client: Client,
    volumes: Api<PersistentVolume>,
    claims: Api<PersistentVolumeClaim>,
}

impl World {
    pub(crate) async fn new(plane: &ControlPlane) -> Self {
        let client = plane.client().await.unwrap();
        let (volumes, claims) = (Api::all(client.clone()), Api::default_namespaced(client.clone()));
        Self { client, volumes, claims }
    }

    pub(crate) async fn create_volume(&self, name: &str, capacity: &str) {
        self.create_volume_with(name, json!({"capacity": {"storage": capacity}})).await;
    }

    /// Creates a volume of a class, reserved for whom the claimRef says.
    pub(crate) async fn create_volume_of(&self, class: &str, name: &str, claim_ref: Value) {
        self.create_volume_with(name, json!({"storageClassName": class, "claimRef": claim_ref})).await;
    }

    /// Creates a volume of 1 GiB whose spec differs from the usual.
    pub(crate) async fn create_volume_with(&self, name: &str, differs: Value) {
        let mut volume = json!({
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": format!("/nonexistent/{name}")},
            },
        });
        volume["spec"].as_object_mut().unwrap().extend(differs.as_object().unwrap().clone());
        let volume = serde_json::from_value(volume).unwrap();
        self.volumes.create(&PostParams::default(), &volume).await.unwrap();
    }

    pub(crate) async fn create_claim(&self, name: &str, request: &str) {
        self.create_claim_with(name, json!({"resources": {"requests": {"storage": request}}})).await;
    }

    /// Creates a claim of a class, which may name a volume.
    pub(crate) async fn create_claim_of(&self, class: &str, name: &str, volume: Option<&str>) {
        self.create_claim_with(name, json!({"storageClassName": class, "volumeName": volume})).await;
    }

    /// Creates a claim of 1 GiB whose spec differs from the usual.
    pub(crate) async fn create_claim_with(&self, name: &str, differs: Value) {
        let mut claim = json!({
            "metadata": {"name": name},
            "spec": {
                "storageClassName": "",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        claim["spec"].as_object_mut().unwrap().extend(differs.as_object().unwrap().clone());
        let claim = serde_json::from_value(claim).unwrap();
        self.claims.create(&PostParams::default(), &claim).await.unwrap();
    }

    /// Creates a class whose volumes Bindery makes below `--host-path`.
    pub(crate) async fn create_class(&self, name: &str) {
        self.create_class_with(name, json!({"provisioner": "kubernetes.io/host-path"})).await;
    }

    /// Creates a class whose volumes are deleted with their claims, and which says this besides.
    pub(crate) async fn create_class_with(&self, name: &str, differs: Value) {
        let mut class = json!({"metadata": {"name": name}, "reclaimPolicy": "Delete"});
        class.as_object_mut().unwrap().extend(differs.as_object().unwrap().clone());
        let class = serde_json::from_value(class).unwrap();
        let classes = Api::<StorageClass>::all(self.client.clone());
        classes.create(&PostParams::default(), &class).await.unwrap();
    }

    pub(crate) async fn delete_claim(&self, name: &str) {
        self.claims.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Adds a finalizer to a volume.
    pub(crate) async fn hold_volume(&self, name: &str, finalizer: &str) {
        let volume = self.volumes.get(name).await.unwrap();
        let finalizers = volume.metadata.finalizers.into_iter().flatten().chain([finalizer.to_owned()]);
        self.set_finalizers(name, finalizers.collect()).await;
    }

    /// Takes a finalizer off a volume, once it is the last one.
    pub(crate) async fn release_volume(&self, name: &str, finalizer: &str) {
        let last = [finalizer.to_owned()];
        let is_last = |volume: &PersistentVolume| volume.metadata.finalizers.as_deref() == Some(&last[..]);
        self.until_volume(name, is_last).await;
        self.set_finalizers(name, Vec::new()).await;
    }

    async fn set_finalizers(&self, name: &str, finalizers: Vec<String>) {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        self.volumes.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the world is at rest, and checks that there are so many claims, all bound.
    pub(crate) async fn check_pairs(&self, pairs: usize) {
        until_rest(&self.client, async |_| Vec::new()).await.unwrap();
        let claims = self.claims.list(&ListParams::default()).await.unwrap().items;
        assert_eq!((claims.len(), claims.iter().filter(|claim| is_bound(claim)).count()), (pairs, pairs));
    }

    /// Waits until there is no such claim.
    pub(crate) async fn until_no_claim(&self, name: &str) {
        until_gone(&self.claims, name).await;
    }

    /// Waits until there is no such volume.
    pub(crate) async fn until_no_volume(&self, name: &str) {
        until_gone(&self.volumes, name).await;
    }

    pub(crate) async fn until_volume(
        &self,
        name: &str,
        holds: impl Fn(&PersistentVolume) -> bool,
    ) -> PersistentVolume {
        until(&self.volumes, name, holds).await
    }

    pub(crate) async fn until_claim(
        &self,
        name: &str,
        holds: impl Fn(&PersistentVolumeClaim) -> bool,
    ) -> PersistentVolumeClaim {
        until(&self.claims, name, holds).await
    }

    /// What was told of volumes and claims: kind and name of the object, type and reason of each event. Texts
    /// are Bindery's own.
    pub(crate) async fn told(&self) -> BTreeSet<[String; 4]> {
        let events = Api::<Event>::all(self.client.clone()).list(&ListParams::default()).await.unwrap();
        let events = events.into_iter().filter_map(|event| {
            let (kind, name) = (event.involved_object.kind?, event.involved_object.name?);
            let is_ours = ["PersistentVolume", "PersistentVolumeClaim"].contains(&&*kind);
            is_ours.then(|| [kind, name, event.type_.unwrap(), event.reason.unwrap()])
        });
        events.collect()
    }

    /// Waits until there is an event for which something holds, and returns it.
    pub(crate) async fn until_event(&self, holds: impl Fn(&Event) -> bool) -> Event {
        let events = watcher(Api::<Event>::all(self.client.clone()), watcher::Config::default());
        let mut events = pin!(events.applied_objects());
        let seen = async {
            loop {
                let event = events.next().await.unwrap().unwrap();
                if holds(&event) {
                    return event;
                }
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.expect("the event comes")
    }
}

/// Waits until something holds of an object, and returns the object.
pub(crate) async fn until<K>(api: &Api<K>, name: &str, holds: impl Fn(&K) -> bool) -> K
where
    K: Clone + Debug + DeserializeOwned + Send + kube::Resource<DynamicType: Default> + 'static,
{
    let condition = await_condition(api.clone(), name, |object: Option<&K>| object.is_some_and(&holds));
    match tokio::time::timeout(PATIENCE, condition).await {
        Ok(object) => object.unwrap().unwrap(),
        Err(_) => panic!("{name} stays {:?}", api.get_opt(name).await),
    }
}

/// Waits until the cluster is at rest: the checker, which knows nothing of Bindery, finds no violation, and
/// `further` finds nothing either.
///
/// # Errors
///
/// What is still wrong when patience ends.
pub(crate) async fn until_rest(
    client: &Client,
    further: impl AsyncFn(&Snapshot) -> Vec<String>,
) -> Result<(), Vec<String>> {
    let mut wrong = Vec::new();
    let rest = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        loop {
            ticks.tick().await;
            let moment = snapshot(client).await.unwrap();
            wrong = moment.violations().iter().map(ToString::to_string).collect();
            wrong.extend(further(&moment).await);
            if wrong.is_empty() {
                return;
            }
        }
    };
    match tokio::time::timeout(PATIENCE, rest).await {
        Ok(()) => Ok(()),
        Err(_) => Err(wrong),
    }
}

/// Waits until there is no such object.
async fn until_gone<K>(api: &Api<K>, name: &str)
where
    K: Clone + Debug + DeserializeOwned + Send + kube::Resource<DynamicType: Default> + 'static,
{
    let condition = await_condition(api.clone(), name, |object: Option<&K>| object.is_none());
    match tokio::time::timeout(PATIENCE, condition).await {
        Ok(gone) => drop(gone.unwrap()),
        Err(_) => panic!("{name} stays {:?}", api.get_opt(name).await),
    }
}

pub(crate) fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether an event has that reason, and is about an object of that name.
pub(crate) fn is_told(name: &str, reason: &str) -> impl Fn(&Event) -> bool {
    move |event| {
        event.involved_object.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason)
    }
}

/// Whether a claim is bound to any volume.
pub(crate) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// Whether a claim is bound to that volume.
pub(crate) fn is_bound_to(volume: &str) -> impl Fn(&PersistentVolumeClaim) -> bool {
    move |claim| {
        let spec = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        spec == Some(volume) && phase == Some("Bound")
    }
}

/// With which a replica provisions and deletes hostPath volumes below this folder.
pub(crate) fn provisioning_in(folder: &Path) -> [String; 1] {
    [format!("--host-path={}", folder.display())]
}

/// Makes the folder of a volume below that of [`provisioning_in`], as the plugin does: with the record that
/// it was made so.
pub(crate) fn make_folder(root: &Path, volume: &str) -> PathBuf {
    let (folder, records) = (root.join(volume), root.join(".bindery"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::create_dir_all(&records).unwrap();
    std::fs::write(records.join(volume), "").unwrap();
    folder
}

/// The folders of volumes below that of [`provisioning_in`].
pub(crate) fn folders_in(root: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|folder| !folder.ends_with(".bindery")).collect()
}

/// A running `bindery serve`.
pub(crate) struct Replica {
    server: Server,
    /// Where its log is.
    _folder: TempDir,
    /// The port of its health and metrics.
    pub(crate) listens: u16,
}

impl Replica {
    /// Starts a replica that reaches the API server directly.
    pub(crate) fn start(plane: &ControlPlane, identity: &str) -> Self {
        Self::start_with(&plane.kubeconfig(), identity, &[], &[])
    }

    /// Starts a replica that reaches the API server as a kubeconfig says, with further arguments and
    /// environment.
    pub(crate) fn start_with(
        kubeconfig: &Path,
        identity: &str,
        further: &[String],
        environment: &[(&str, PathBuf)],
    ) -> Self {
        let folder = TempDir::new().unwrap();
        let listens = bindery_cluster::free_port().unwrap();
        let arguments = [
            "--log=info".to_owned(),
            "serve".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--listen=127.0.0.1:{listens}"),
            format!("--identity={identity}"),
        ];
        // Short, so that the next replica soon leads; a setting may be given once.
        let is_lasting = further.iter().any(|argument| argument.starts_with("--lease-duration="));
        let lease = (!is_lasting).then(|| "--lease-duration=3".to_owned());
        let log = folder.path().join("log");
        let program = env!("CARGO_BIN_EXE_bindery").as_ref();
        let arguments = arguments.iter().chain(&lease).chain(further).map(OsString::from);
        let server = Server::start_in(environment, program, arguments, &log).unwrap();
        Self { server, _folder: folder, listens }
    }

    /// Waits until this replica leads.
    pub(crate) async fn until_leading(&mut self) {
        self.until_metrics("bindery_leader 1\n").await;
    }

    /// Waits until this replica or another one leads; answers whether the other does.
    pub(crate) async fn until_any_leads(&mut self, other: &mut Self) -> bool {
        tokio::select! {
            () = self.until_leading() => false,
            () = other.until_leading() => true,
        }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.server.id()).unwrap()).unwrap()
    }

    /// Waits until this replica no longer leads.
    pub(crate) async fn until_following(&mut self) {
        self.until_metrics("bindery_leader 0\n").await;
    }

    /// Waits until the metrics hold this sample.
    pub(crate) async fn until_metrics(&mut self, sample: &str) {
        let seen = async {
            // Nothing tells of it but the metrics.
            let mut ticks = tokio::time::interval(Duration::from_millis(50));
            loop {
                ticks.tick().await;
                self.server.check().unwrap();
                if self.try_get("/metrics").await.is_some_and(|metrics| metrics.contains(sample)) {
                    return;
                }
            }
        };
        let seen = tokio::time::timeout(PATIENCE, seen).await;
        assert!(seen.is_ok(), "no {sample:?}: {}", self.server.log().unwrap());
    }

    /// Waits until there is a line in its log with this text; answers the first such line.
    pub(crate) async fn until_logged(&mut self, text: &str) -> String {
        let logged = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(50));
            loop {
                ticks.tick().await;
                self.server.check().unwrap();
                let log = self.log();
                // A line without an end is still being written.
                let mut lines = log.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
                if let Some(line) = lines.find(|line| line.contains(text)) {
                    return line.to_owned();
                }
            }
        };
        let logged = tokio::time::timeout(PATIENCE, logged).await;
        logged.unwrap_or_else(|_| panic!("no {text:?}: {}", self.log()))
    }

    /// Waits until its answer to a probe begins with this text; answers the whole.
    pub(crate) async fn until_told(&self, path: &str, text: &str) -> (StatusCode, String) {
        let told = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(50));
            loop {
                ticks.tick().await;
                // It may not listen yet.
                if let Some(told) = self.try_probe(path).await
                    && told.1.starts_with(text)
                {
                    return told;
                }
            }
        };
        let told = tokio::time::timeout(PATIENCE, told).await;
        told.unwrap_or_else(|_| panic!("it never says {text:?}: {}", self.log()))
    }

    /// What it answers.
    pub(crate) async fn get(&self, path: &str) -> String {
        self.try_get(path).await.unwrap()
    }

    /// What it answers a probe: whether it is well, as kubelets see it, and the text.
    pub(crate) async fn probe(&self, path: &str) -> (StatusCode, String) {
        self.try_probe(path).await.unwrap()
    }

    /// What it answers; `None` where it does not.
    pub(crate) async fn try_get(&self, path: &str) -> Option<String> {
        self.try_probe(path).await.map(|(_, text)| text)
    }

    async fn try_probe(&self, path: &str) -> Option<(StatusCode, String)> {
        let client = legacy::Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let uri = format!("http://127.0.0.1:{}{path}", self.listens).parse().unwrap();
        let answer = client.get(uri).await.ok()?;
        let status = answer.status();
        let body = answer.into_body().collect().await.ok()?;
        Some((status, String::from_utf8(body.to_bytes().to_vec()).unwrap()))
    }

    /// The value of a metric.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let metrics = self.get("/metrics").await;
        let sample = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        sample.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {metrics}"))
    }

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        self.server.log().unwrap()
    }

    /// Fails where it has ended.
    pub(crate) fn check(&mut self) {
        self.server.check().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.server.signal(signal).unwrap();
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn wait(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(PATIENCE, self.server.wait()).await;
        ended.unwrap_or_else(|_| panic!("it does not end: {}", self.log())).unwrap()
    }
}

/// Runs `bindery serve` with arguments that it refuses; answers its exit status and what it says.
pub(crate) fn serve_in_vain(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bindery"));
    command.arg("serve").args(["--listen", "127.0.0.1:0"]).args(arguments);
    let output = command.env_remove("KUBECONFIG").env("BINDERY_ENGINE", "native").output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}
