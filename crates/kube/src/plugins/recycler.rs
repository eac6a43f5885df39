//! Scrubs volumes with a pod (policy Recycle, which upstream has deprecated).

use std::collections::HashSet;
use std::time::Duration;

use bindery_controller::{Note, PluginError};
use bindery_core::{EventType, Regarding, Volume, VolumeTarget};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::failed;
use super::live::{check_released, live_source};
use crate::client::ApiClient;
use crate::events::Events;
use crate::keys::FIELD_MANAGER;
use crate::port::Clock;
use crate::rest::{self, Fault};

/// Where the built-in pod runs.
const NAMESPACE: &str = "default";
/// Keeps a pod from being scheduled until its volume has been read once more.
const GATE: &str = "bindery.dev/volume-read";
/// Pause between attempts to remove the pods of earlier leaders, which delays the first decision.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Longest time for each request of that. A leader that has not begun after 20 s leaves the Lease to another
/// replica, and a dead connection must not cost that.
const TAKE_OVER_MAX: Duration = Duration::from_secs(5);
/// The image of upstream v1.36.
pub const RECYCLER_IMAGE: &str = "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6";
/// Deletes everything below `/scrub`, and fails if something is left.
const SCRIPT: &str =
    "test -e /scrub && find /scrub -mindepth 1 -delete && test -z \"$(ls -A /scrub)\" || exit 1";
/// Pause between two reads of the pod. A pod takes seconds, and recycling is rare.
const POLL: Duration = Duration::from_secs(2);
/// Time that a pod may take to start, in addition to its deadline, which counts from its start. Upstream
/// waits for ever, so a pod that cannot be scheduled blocks its volume until it is deleted by hand.
const START_MAX: Duration = Duration::from_secs(600);
const GIB: u64 = 1 << 30;

/// The template of recycler pods, and how long they may run.
#[derive(Clone, Debug)]
pub struct RecyclerSettings {
    /// The pod. The source of its first volume is replaced. It may not name a node.
    pub pod: Value,
    /// Lowest `activeDeadlineSeconds`.
    pub minimum_seconds: u64,
    /// `activeDeadlineSeconds` for each GiB of capacity.
    pub seconds_per_gib: u64,
}

/// Why a recycler pod's template cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A pod that names its node starts at once, and the API server does not let it have a gate.
    #[error(
        "the recycler pod's template has spec.nodeName, so it could not be held back until its volume has \
         been read once more: choose its node by spec.nodeSelector or spec.affinity"
    )]
    NodeName,
    /// The template has no volume to replace.
    #[error("the recycler pod's template has no metadata or no entry in spec.volumes")]
    NoVolume,
}

/// A recycler pod that was created.
struct Pod {
    namespace: String,
    path: String,
    uid: String,
    /// The pod in the API server's answer.
    object: Value,
}

/// Runs recycler pods.
#[derive(Clone)]
pub struct Recycler {
    client: ApiClient,
    clock: Clock,
    events: Events,
    settings: RecyclerSettings,
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

    /// The same settings with another image, which must have a shell and `find`. For clusters that cannot
    /// reach upstream's registry.
    #[must_use]
    pub fn with_image(mut self, image: &str) -> Self {
        self.pod["spec"]["containers"][0]["image"] = image.into();
        self
    }

    fn deadline(&self, volume: &Volume) -> Duration {
        let gib = volume.capacity.map_or(0, |capacity| capacity.whole / GIB);
        Duration::from_secs(self.minimum_seconds.max(gib.saturating_mul(self.seconds_per_gib)))
    }

    fn check(&self) -> Result<(), TemplateError> {
        let spec = &self.pod["spec"];
        if spec["nodeName"].as_str().is_some_and(|node| !node.is_empty()) {
            return Err(TemplateError::NodeName);
        }
        let is_whole = self.pod["metadata"].is_object() && spec["volumes"][0].is_object();
        if is_whole { Ok(()) } else { Err(TemplateError::NoVolume) }
    }

    /// Where pods are listed and created.
    fn pods(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace())
    }

    fn namespace(&self) -> &str {
        self.pod["metadata"]["namespace"].as_str().unwrap_or(NAMESPACE)
    }

    /// The pod that scrubs a volume. It has a name of its own, so that concurrent recycles do not meet, a
    /// gate, and the volume as its owner.
    fn pod_for(&self, volume: &Volume, source: Value) -> Value {
        let mut pod = self.pod.clone();
        let meta = &mut pod["metadata"];
        meta.as_object_mut().map(|meta| meta.remove("generateName"));
        meta["name"] = format!("recycler-for-{}", volume.name).into();
        meta["ownerReferences"] = json!([{
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "name": *volume.name,
            "uid": *volume.uid.0,
        }]);
        let spec = &mut pod["spec"];
        let first = &mut spec["volumes"][0];
        let name = first["name"].take();
        *first = source;
        first["name"] = name;
        spec["activeDeadlineSeconds"] = self.deadline(volume).as_secs().into();
        let mut gates = gates(spec);
        gates.push(json!({"name": GATE}));
        spec["schedulingGates"] = gates.into();
        pod
    }
}

impl Recycler {
    /// A recycler that runs pods in the cluster of this client, and reports their events through `events`.
    ///
    /// # Errors
    ///
    /// The pod's template cannot be used.
    pub fn new(
        client: impl Into<ApiClient>,
        clock: Clock,
        events: Events,
        settings: RecyclerSettings,
    ) -> Result<Self, TemplateError> {
        settings.check()?;
        Ok(Self { client: client.into().limited(), clock, events, settings })
    }

    /// Removes the gated pods that earlier leaders have left, before a binder begins to decide. Repeats until
    /// they are gone.
    ///
    /// An earlier leader that still runs could start such a pod: see [`Self::run`].
    pub(super) async fn take_over(recycler: Option<&Self>) {
        let Some(recycler) = recycler else { return };
        let client = recycler.client.within(TAKE_OVER_MAX);
        let recycler = Self { client, ..recycler.clone() };
        while let Err(fault) = recycler.remove_gated().await {
            tracing::warn!(%fault, "gated recycler pods of an earlier leader cannot be removed");
            // The rights to start such a pod and to delete it are granted together.
            if fault.is_denial() {
                return;
            }
            tokio::time::sleep(RETRY_EVERY).await;
        }
    }

    async fn remove_gated(&self) -> Result<(), Fault> {
        let pods = self.settings.pods();
        let path = format!("{pods}?fieldSelector=status.phase%3DPending");
        let list = rest::json(&self.client, http::Method::GET, &path, None).await?;
        for pod in list["items"].as_array().into_iter().flatten().filter(|pod| is_gated(pod)) {
            let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
            self.delete(&format!("{pods}/{}", rest::encode(text("name"))), text("uid")).await?;
        }
        Ok(())
    }

    /// Scrubs a volume, whose source has these fields.
    pub(super) async fn recycle(
        recycler: Option<&Self>,
        volume: &Volume,
        fields: &[&str],
    ) -> Result<(), PluginError> {
        let recycler = recycler.ok_or_else(|| failed(recycling_is_off()))?;
        let live = live_source(&recycler.client, volume).await?;
        let source = fields.iter().map(|field| ((*field).to_owned(), live[field].clone())).collect();
        recycler.run(volume, json!({&*volume.source: Value::Object(source)})).await
    }

    /// Scrubs a volume that has not changed since the decision.
    ///
    /// A leader may be suspended at any point here, and continue when another replica leads. It then must
    /// not scrub what the volume's next claim has written. No single request changes a pod on the condition
    /// that a volume is unchanged. So there are three: create the pod with a gate, read the volume, and
    /// remove the gate of the pod with the UID that was created.
    ///
    /// - The pod is named after the volume, and the volume goes to another claim only after a pod of that
    ///   name has scrubbed it. So the next leader has created that pod, and this leader's pod was gone
    ///   before: the next leader deletes a pod that it finds, by its UID, and waits until the name is free.
    /// - A leader that continues before the read finds the volume with another claim, or none, and deletes
    ///   its pod.
    /// - A leader that continues after the read finds no pod of its UID: removing the gate is refused.
    /// - A volume whose `claimRef` was cleared by hand needs no scrubbing. So gated pods of earlier leaders
    ///   are removed before a new leader decides anything ([`Self::take_over`]).
    async fn run(&self, volume: &Volume, source: Value) -> Result<(), PluginError> {
        let pod = self.create(volume, source).await?;
        let scrubbed = async {
            check_released(&self.client, volume).await?;
            self.start(&pod).await?;
            self.wait(volume, &pod).await
        };
        let scrubbed = scrubbed.await;
        let deleted = self.delete(&pod.path, &pod.uid).await;
        scrubbed.map_err(|error| failed(format!("failed to recycle volume: {error}")))?;
        deleted.map_err(not_deleted)
    }

    async fn create(&self, volume: &Volume, source: Value) -> Result<Pod, PluginError> {
        let pods = self.settings.pods();
        let pod = self.settings.pod_for(volume, source);
        let path = format!("{pods}/{}", pod["metadata"]["name"].as_str().unwrap_or_default());
        let object = match rest::json(&self.client, http::Method::POST, &pods, Some(&pod)).await {
            Ok(object) => object,
            Err(Fault::Refused { reason, .. }) if reason == "AlreadyExists" => {
                // A pod of an earlier recycle looks the same as one that a user has created.
                self.delete_old(&path).await?;
                return Err(failed("old recycler pod found, will retry later"));
            }
            Err(fault) => {
                return Err(failed(format!("unexpected error creating recycler pod:  {}", fault.message())));
            }
        };
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Ok(Pod { namespace: self.settings.namespace().to_owned(), path, uid, object })
    }

    /// Removes the pod's gate.
    async fn start(&self, pod: &Pod) -> Result<(), PluginError> {
        if !is_gated(&pod.object) {
            return Err(failed(format!("the recycler pod was created without its scheduling gate {GATE}")));
        }
        // Other controllers may have added gates.
        let gates: Vec<Value> =
            gates(&pod.object["spec"]).into_iter().filter(|gate| gate["name"] != GATE).collect();
        let patch = json!({
            "metadata": {"uid": pod.uid, "resourceVersion": pod.object["metadata"]["resourceVersion"]},
            "spec": {"schedulingGates": gates},
        });
        let path = format!("{}?fieldManager={FIELD_MANAGER}", pod.path);
        let started = rest::json(&self.client, http::Method::PATCH, &path, Some(&patch)).await;
        started
            .map(drop)
            .map_err(|fault| failed(format!("the recycler pod cannot be started: {}", fault.message())))
    }

    async fn wait(&self, volume: &Volume, pod: &Pod) -> Result<(), PluginError> {
        let Pod { namespace, path, uid, .. } = pod;
        let give_up = Instant::now() + self.settings.deadline(volume) + START_MAX;
        let mut told = HashSet::new();
        while Instant::now() < give_up {
            tokio::time::sleep(POLL).await;
            self.repeat_events(volume, namespace, uid, &mut told).await;
            let pod = match rest::json(&self.client, http::Method::GET, path, None).await {
                Ok(pod) if pod["metadata"]["uid"] == uid.as_str() => pod,
                // Nothing says that the pod is gone; it continues.
                Err(fault) if !is_absence(&fault, path) => continue,
                Ok(_) | Err(_) => return Err(failed("recycler pod was deleted")),
            };
            match pod["status"]["phase"].as_str() {
                Some("Succeeded") => return Ok(()),
                Some("Failed") => {
                    let message = pod["status"]["message"].as_str().filter(|message| !message.is_empty());
                    return Err(failed(message.unwrap_or("pod failed, pod.Status.Message unknown.")));
                }
                _ => {}
            }
        }
        Err(failed("the recycler pod did not end in time"))
    }

    /// Repeats the pod's new events as events of the volume. Best effort.
    async fn repeat_events(&self, volume: &Volume, namespace: &str, uid: &str, told: &mut HashSet<String>) {
        let path = format!("/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.uid%3D{uid}");
        let Ok(list) = rest::json(&self.client, http::Method::GET, &path, None).await else { return };
        for event in list["items"].as_array().into_iter().flatten() {
            let text = |field: &str| event[field].as_str().unwrap_or_default();
            if told.insert(event["metadata"]["uid"].as_str().unwrap_or_default().to_owned()) {
                let warning = text("type") == EventType::Warning.name();
                let note = Note {
                    regarding: Regarding::Volume(VolumeTarget::clone(&volume.target())),
                    event_type: if warning { EventType::Warning } else { EventType::Normal },
                    reason: "RecyclerPod",
                    message: format!("Recycler pod: {}", text("message")),
                };
                self.events.emit(&note, (self.clock)());
            }
        }
    }

    /// Deletes the pod of that name, whatever its UID.
    async fn delete_old(&self, path: &str) -> Result<(), PluginError> {
        match rest::json(&self.client, http::Method::GET, path, None).await {
            Ok(pod) => {
                let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
                self.delete(path, uid).await.map_err(not_deleted)
            }
            Err(fault) if is_absence(&fault, path) => Ok(()),
            Err(fault) => Err(failed(format!("failed to read old recycler pod: {}", fault.message()))),
        }
    }

    /// Deletes the pod with that UID, and no other pod of its name.
    async fn delete(&self, path: &str, uid: &str) -> Result<(), Fault> {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
        match rest::json(&self.client, http::Method::DELETE, path, Some(&options)).await {
            Ok(_) | Err(Fault::Refused { code: 409, .. }) => Ok(()),
            Err(fault) if is_absence(&fault, path) => Ok(()),
            Err(fault) => Err(fault),
        }
    }
}

/// Whether the API server says that the pod with that path does not exist. A proxy may answer 404 too.
fn is_absence(fault: &Fault, path: &str) -> bool {
    fault.is_absence_of("pods", path.rsplit('/').next().unwrap_or_default())
}

fn not_deleted(fault: Fault) -> PluginError {
    failed(format!("failed to delete recycler pod: {}", fault.message()))
}

/// Why nothing is recycled.
pub(super) fn recycling_is_off() -> String {
    "recycling is off; turn it on by bindery serve --recycle true, or give the volume policy Retain or Delete"
        .to_owned()
}

/// The scheduling gates of a pod's spec.
fn gates(spec: &Value) -> Vec<Value> {
    spec["schedulingGates"].as_array().cloned().unwrap_or_default()
}

fn is_gated(pod: &Value) -> bool {
    gates(&pod["spec"]).iter().any(|gate| gate["name"] == GATE)
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
    fn a_template_with_another_image_keeps_the_script() {
        let settings = RecyclerSettings::nfs().with_image("registry.example/scrub@sha256:0");
        let container = &settings.pod["spec"]["containers"][0];
        assert_eq!(container["image"], "registry.example/scrub@sha256:0");
        assert_eq!(container["args"][1], SCRIPT);
    }

    #[test]
    fn a_template_without_volume_or_with_a_node_is_refused() {
        let with = |field: &str, value: Value| {
            let mut settings = RecyclerSettings::nfs();
            settings.pod["spec"][field] = value;
            settings.check()
        };
        assert_eq!(with("nodeSelector", json!({"disk": "local"})), Ok(()));
        assert_eq!(with("volumes", json!([])), Err(TemplateError::NoVolume));
        let refused = with("nodeName", "node-1".into()).unwrap_err();
        assert!(refused.to_string().contains("spec.nodeName"), "{refused}");
    }
}
