//! Scrubs volumes by a pod (policy Recycle, deprecated upstream; reference section 10.5).

use std::collections::HashSet;
use std::time::Duration;

use bindery_controller::{Order, Plugin, PluginError};
use bindery_core::{
    EventType, Plugin as Description, PluginOperation, Regarding, Text, Volume, VolumeTarget,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::ApiClient;
use crate::events::{Entry, Events};
use crate::port::Clock;
use crate::request::{self, Template};
use crate::rest::{self, Fault};

/// Name of the NFS plugin.
pub const NFS: &str = "kubernetes.io/nfs";
/// Where the built-in pod runs.
const NAMESPACE: &str = "default";
/// The image of upstream v1.36.
pub const RECYCLER_IMAGE: &str = "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6";
/// Deletes everything below `/scrub` and fails unless it is empty then.
const SCRIPT: &str =
    "test -e /scrub && find /scrub -mindepth 1 -delete && test -z \"$(ls -A /scrub)\" || exit 1";
/// Pause between two looks at the pod. A pod takes seconds, and recycling is rare.
const POLL: Duration = Duration::from_secs(2);
/// How long a pod may take to start beyond its deadline, which counts from its start only: upstream waits for
/// ever, and one pod that cannot be scheduled then blocks its volume until somebody deletes it.
const START_MAX: Duration = Duration::from_secs(600);
const GIB: u64 = 1 << 30;

/// How recycler pods look and how long they may run.
#[derive(Clone, Debug)]
pub struct RecyclerSettings {
    /// The pod; its first volume's source is replaced.
    pub pod: Value,
    /// `activeDeadlineSeconds` at least.
    pub minimum_seconds: u64,
    /// Seconds for each GiB.
    pub seconds_per_gib: u64,
}

/// Runs recycler pods.
#[derive(Clone)]
pub struct Recycler {
    client: ApiClient,
    clock: Clock,
    events: Events,
    settings: RecyclerSettings,
}

/// Serves volumes of source `nfs`: recycles them, nothing else (upstream's `pkg/volume/nfs`).
pub struct Nfs {
    client: ApiClient,
    recycler: Option<Recycler>,
}

impl RecyclerSettings {
    /// Upstream's for hostPath.
    pub fn host_path() -> Self {
        Self { pod: default_pod(), minimum_seconds: 60, seconds_per_gib: 30 }
    }

    /// Upstream's for NFS.
    pub fn nfs() -> Self {
        Self { pod: default_pod(), minimum_seconds: 300, seconds_per_gib: 30 }
    }

    /// The same with another image, whose shell and `find` scrub: for clusters that cannot reach upstream's registry.
    #[must_use]
    pub fn with_image(mut self, image: &str) -> Self {
        self.pod["spec"]["containers"][0]["image"] = image.into();
        self
    }

    fn deadline(&self, volume: &Volume) -> Duration {
        let gib = volume.capacity.map_or(0, |capacity| capacity.whole / GIB);
        Duration::from_secs(self.minimum_seconds.max(gib.saturating_mul(self.seconds_per_gib)))
    }

    /// The pod that scrubs a volume: a copy of its own, so that recycles side by side do not meet.
    fn pod_for(&self, volume: &Volume, source: Value) -> Result<Value, PluginError> {
        let no_volume = || failed("the recycler pod's template has no volume".to_owned());
        let mut pod = self.pod.clone();
        let meta = pod["metadata"].as_object_mut().ok_or_else(no_volume)?;
        meta.remove("generateName");
        meta.insert("name".to_owned(), format!("recycler-for-{}", volume.name).into());
        let first = pod["spec"]["volumes"].get_mut(0).ok_or_else(no_volume)?;
        let name = first["name"].clone();
        *first = source;
        first["name"] = name;
        pod["spec"]["activeDeadlineSeconds"] = self.deadline(volume).as_secs().into();
        Ok(pod)
    }
}

impl Recycler {
    /// Runs pods in the cluster of this client and tells of them by `events`.
    pub fn new(
        client: impl Into<ApiClient>,
        clock: Clock,
        events: Events,
        settings: RecyclerSettings,
    ) -> Self {
        Self { client: client.into().limited(), clock, events, settings }
    }

    /// Scrubs a volume.
    pub(super) async fn run(&self, volume: &Volume, source: Value) -> Result<(), PluginError> {
        let pod = self.settings.pod_for(volume, source)?;
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or(NAMESPACE).to_owned();
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        let path = format!("{pods}/{}", pod["metadata"]["name"].as_str().unwrap_or_default());
        let created = match rest::json(&self.client, http::Method::POST, &pods, Some(pod)).await {
            Ok(created) => created,
            Err(Fault::Refused { reason, .. }) if reason == "AlreadyExists" => {
                // A stale pod cannot be told from a forged one.
                self.delete(&path).await?;
                return Err(failed("old recycler pod found, will retry later".to_owned()));
            }
            Err(fault) => {
                return Err(failed(format!("unexpected error creating recycler pod:  {}", fault.message())));
            }
        };
        let waited = self.wait(volume, &namespace, &path, &created).await;
        let deleted = self.delete(&path).await;
        waited.map_err(|error| failed(format!("failed to recycle volume: {error}")))?;
        deleted
    }

    async fn wait(
        &self,
        volume: &Volume,
        namespace: &str,
        path: &str,
        created: &Value,
    ) -> Result<(), PluginError> {
        let uid = created["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let give_up = Instant::now() + self.settings.deadline(volume) + START_MAX;
        let mut told = HashSet::new();
        while Instant::now() < give_up {
            tokio::time::sleep(POLL).await;
            self.tell(volume, namespace, &uid, &mut told).await;
            let pod = match rest::json(&self.client, http::Method::GET, path, None).await {
                Ok(pod) if pod["metadata"]["uid"] == uid.as_str() => pod,
                Ok(_) | Err(Fault::Refused { code: 404, .. }) => {
                    return Err(failed("recycler pod was deleted".to_owned()));
                }
                // The API server is away; the pod runs on.
                Err(_) => continue,
            };
            match pod["status"]["phase"].as_str() {
                Some("Succeeded") => return Ok(()),
                Some("Failed") => {
                    let message = pod["status"]["message"].as_str().filter(|message| !message.is_empty());
                    return Err(failed(
                        message.unwrap_or("pod failed, pod.Status.Message unknown.").to_owned(),
                    ));
                }
                _ => {}
            }
        }
        Err(failed("the recycler pod did not end in time".to_owned()))
    }

    /// Tells the volume what its pod was told. Best effort.
    async fn tell(&self, volume: &Volume, namespace: &str, uid: &str, told: &mut HashSet<String>) {
        let path = format!("/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.uid%3D{uid}");
        let Ok(list) = rest::json(&self.client, http::Method::GET, &path, None).await else { return };
        for event in list["items"].as_array().into_iter().flatten() {
            let text = |field: &str| event[field].as_str().unwrap_or_default();
            if told.insert(event["metadata"]["uid"].as_str().unwrap_or_default().to_owned()) {
                let warning = text("type") == EventType::Warning.name();
                let entry = Entry {
                    regarding: Regarding::Volume(VolumeTarget::clone(&volume.target())),
                    event_type: if warning { EventType::Warning } else { EventType::Normal },
                    reason: "RecyclerPod".into(),
                    message: format!("Recycler pod: {}", text("message")),
                };
                self.events.submit(entry, (self.clock)());
            }
        }
    }

    async fn delete(&self, path: &str) -> Result<(), PluginError> {
        match rest::json(&self.client, http::Method::DELETE, path, None).await {
            Ok(_) | Err(Fault::Refused { code: 404, .. }) => Ok(()),
            Err(fault) => Err(failed(format!("failed to delete recycler pod: {}", fault.message()))),
        }
    }
}

impl Nfs {
    /// Recycles by `recycler`; without one, that is off.
    pub fn new(client: impl Into<ApiClient>, recycler: Option<Recycler>) -> Self {
        Self { client: client.into().limited(), recycler }
    }
}

impl Plugin<Template> for Nfs {
    fn describe(&self) -> Description {
        Description {
            name: NFS.into(),
            provisions: false,
            deletes: false,
            recycles: true,
            mount_options: true,
        }
    }

    fn supports(&self, volume: &Volume) -> bool {
        &*volume.source == "nfs"
    }

    fn ready(&self, operation: PluginOperation) -> Result<(), Text> {
        match operation {
            PluginOperation::Recycle if self.recycler.is_some() => Ok(()),
            PluginOperation::Recycle => Err(recycling_is_off().into()),
            _ => Err(format!("volume plugin {NFS:?} cannot do this").into()),
        }
    }

    fn provision<'a>(&'a self, _: &'a Order) -> BoxFuture<'a, Result<Template, PluginError>> {
        cannot()
    }

    fn discard<'a>(&'a self, _: &'a Template) -> BoxFuture<'a, Result<(), PluginError>> {
        cannot()
    }

    fn delete<'a>(&'a self, _: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        cannot()
    }

    fn recycle<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        async move {
            let recycler = self.recycler.as_ref().ok_or_else(|| failed(recycling_is_off()))?;
            let source = live_source(&self.client, volume, "nfs").await?;
            let (server, path) = (&source["server"], &source["path"]);
            recycler.run(volume, json!({"nfs": {"server": server, "path": path}})).await
        }
        .boxed()
    }
}

/// Why nothing is recycled.
pub(super) fn recycling_is_off() -> String {
    "recycling is off; turn it on by bindery serve --recycle true, or give the volume policy Retain or Delete"
        .to_owned()
}

fn cannot<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T, PluginError>> {
    futures::future::ready(Err(failed(format!("volume plugin {NFS:?} cannot do this")))).boxed()
}

/// The source of a volume, read live: decisions know its kind only. Who leads no longer may not know it yet, and whoever leads
/// now may have scrubbed the volume and offered it again: what is on it then is somebody else's.
pub(super) async fn live_source(
    client: &ApiClient,
    volume: &Volume,
    source: &str,
) -> Result<Value, PluginError> {
    let path = request::volume_path(&volume.name).map_err(|error| failed(error.to_string()))?;
    let live = rest::json(client, http::Method::GET, &path, None)
        .await
        .map_err(|fault| failed(fault.to_string()))?;
    if live["metadata"]["uid"].as_str() != Some(&*volume.uid.0) {
        return Err(failed(format!("volume {:?} has been replaced by another of its name", volume.name)));
    }
    let decided = volume.claim_ref.as_ref().and_then(|claim| claim.uid.as_ref());
    if live["spec"]["claimRef"]["uid"].as_str() != decided.map(|uid| &*uid.0) {
        return Err(failed(format!("volume {:?} is no longer the one that its claim has left", volume.name)));
    }
    Ok(live["spec"][source].clone())
}

fn failed(text: String) -> PluginError {
    PluginError::Failed(text.into())
}

/// Upstream's `NewPersistentVolumeRecyclerPodTemplate`.
fn default_pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "", "namespace": NAMESPACE},
        "spec": {
            "restartPolicy": "Never",
            "volumes": [{"name": "vol"}],
            "containers": [{
                "name": "pv-recycler",
                "image": RECYCLER_IMAGE,
                "command": ["/bin/sh"],
                "args": ["-c", SCRIPT],
                "volumeMounts": [{"name": "vol", "mountPath": "/scrub"}],
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_the_operators() {
        let settings = RecyclerSettings::nfs().with_image("registry.example/scrub@sha256:0");
        let container = &settings.pod["spec"]["containers"][0];
        assert_eq!(container["image"], "registry.example/scrub@sha256:0");
        assert_eq!(container["args"][1], SCRIPT);
    }
}
