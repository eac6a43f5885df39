//! Scrubs volumes by a pod (policy Recycle, deprecated upstream; reference section 10.5).

use std::collections::HashSet;
use std::time::Duration;

use bindery_controller::PluginError;
use bindery_core::{EventType, Regarding, Volume, VolumeTarget};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::live::check_released;
use crate::client::ApiClient;
use crate::events::{Entry, Events};
use crate::keys::FIELD_MANAGER;
use crate::port::Clock;
use crate::rest::{self, Fault};

/// Where the built-in pod runs.
const NAMESPACE: &str = "default";
/// Keeps a pod from being scheduled until its volume has been read once more.
const GATE: &str = "bindery.dev/volume-read";
/// Longest time that removing the pods of earlier leaders may hold up the decisions of a new one.
const TAKE_OVER_MAX: Duration = Duration::from_secs(5);
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
    /// The pod; its first volume's source is replaced. It may not name its node.
    pub pod: Value,
    /// `activeDeadlineSeconds` at least.
    pub minimum_seconds: u64,
    /// Seconds for each GiB.
    pub seconds_per_gib: u64,
}

/// Why a recycler pod's template cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A pod with a node starts at once, and the API server refuses it a gate.
    #[error(
        "the recycler pod's template has spec.nodeName, so it could not be held back until its volume has been read once \
         more: choose its node by spec.nodeSelector or spec.affinity"
    )]
    NodeName,
    /// There is no place for the volume that is scrubbed.
    #[error("the recycler pod's template has no metadata or no entry in spec.volumes")]
    NoVolume,
}

/// A recycler pod that was created.
struct Pod {
    namespace: String,
    path: String,
    uid: String,
    /// As the API server has answered it.
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

    /// The same with another image, whose shell and `find` scrub: for clusters that cannot reach upstream's
    /// registry.
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

    /// The pod that scrubs a volume: a copy of its own, so that recycles side by side do not meet. It is
    /// gated, and it goes with its volume.
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
    /// Runs pods in the cluster of this client and tells of them by `events`.
    ///
    /// # Errors
    ///
    /// The settings have a pod that cannot be used.
    pub fn new(
        client: impl Into<ApiClient>,
        clock: Clock,
        events: Events,
        settings: RecyclerSettings,
    ) -> Result<Self, TemplateError> {
        settings.check()?;
        Ok(Self { client: client.into().limited(), clock, events, settings })
    }

    /// Removes the gated pods that earlier leaders have left, before a binder begins to decide.
    ///
    /// An earlier leader that still runs could open such a pod: see [`Self::run`].
    pub(super) async fn take_over(recycler: Option<&Self>) {
        let Some(recycler) = recycler else { return };
        let removed = tokio::time::timeout(TAKE_OVER_MAX, recycler.remove_gated()).await;
        let why = match removed {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the API server does not answer in time".to_owned(),
        };
        tracing::warn!(
            why,
            "gated recycler pods of an earlier leader may be left in {}",
            recycler.settings.namespace()
        );
    }

    async fn remove_gated(&self) -> Result<(), PluginError> {
        let pods = self.settings.pods();
        let path = format!("{pods}?fieldSelector=status.phase%3DPending");
        let list = rest::json(&self.client, http::Method::GET, &path, None).await;
        let list = list.map_err(|fault| failed(format!("pods cannot be listed: {fault}")))?;
        for pod in list["items"].as_array().into_iter().flatten().filter(|pod| is_gated(pod)) {
            let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
            self.delete(&format!("{pods}/{}", rest::encode(text("name"))), text("uid")).await?;
        }
        Ok(())
    }

    /// Scrubs a volume, which is as it was when this was decided.
    ///
    /// A leader may stand still at any point here, and go on when another one leads. It then must not scrub
    /// what the volume's next claim has written. There is no request that changes a pod if a volume is as it
    /// was, so there are three: the pod is created gated, the volume is read, and the gate is removed from
    /// the pod with the UID that was created.
    ///
    /// - The pod's name is the volume's, and a volume is given to another claim when a pod of that name has
    ///   scrubbed it. So the next leader has created that pod, and before that, this leader's pod was gone:
    ///   it deletes a pod that it finds, by its UID, and waits until the name is free.
    /// - A leader that goes on before the volume is read finds it with another claim, or none, and removes
    ///   its pod.
    /// - A leader that goes on after that finds no pod of its UID: the gate's removal is refused.
    /// - A volume whose `claimRef` somebody has cleared by hand needs no scrubbing. Gated pods of earlier
    ///   leaders are therefore removed before a new leader decides anything ([`Self::take_over`]).
    pub(super) async fn run(&self, volume: &Volume, source: Value) -> Result<(), PluginError> {
        let pod = self.create(volume, source).await?;
        let scrubbed = async {
            check_released(&self.client, volume).await?;
            self.open(&pod).await?;
            self.wait(volume, &pod).await
        };
        let scrubbed = scrubbed.await;
        let deleted = self.delete(&pod.path, &pod.uid).await;
        scrubbed.map_err(|error| failed(format!("failed to recycle volume: {error}")))?;
        deleted
    }

    async fn create(&self, volume: &Volume, source: Value) -> Result<Pod, PluginError> {
        let pods = self.settings.pods();
        let pod = self.settings.pod_for(volume, source);
        let path = format!("{pods}/{}", pod["metadata"]["name"].as_str().unwrap_or_default());
        let object = match rest::json(&self.client, http::Method::POST, &pods, Some(pod)).await {
            Ok(object) => object,
            Err(Fault::Refused { reason, .. }) if reason == "AlreadyExists" => {
                // A stale pod cannot be told from a forged one.
                self.delete_old(&path).await?;
                return Err(failed("old recycler pod found, will retry later".to_owned()));
            }
            Err(fault) => {
                return Err(failed(format!("unexpected error creating recycler pod:  {}", fault.message())));
            }
        };
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Ok(Pod { namespace: self.settings.namespace().to_owned(), path, uid, object })
    }

    /// Lets a pod run.
    async fn open(&self, pod: &Pod) -> Result<(), PluginError> {
        if !is_gated(&pod.object) {
            return Err(failed(format!("the recycler pod was created without its scheduling gate {GATE}")));
        }
        // Others may have gates of their own.
        let gates: Vec<Value> =
            gates(&pod.object["spec"]).into_iter().filter(|gate| gate["name"] != GATE).collect();
        let patch = json!({
            "metadata": {"uid": pod.uid, "resourceVersion": pod.object["metadata"]["resourceVersion"]},
            "spec": {"schedulingGates": gates},
        });
        let path = format!("{}?fieldManager={FIELD_MANAGER}", pod.path);
        let opened = rest::json(&self.client, http::Method::PATCH, &path, Some(patch)).await;
        opened
            .map(drop)
            .map_err(|fault| failed(format!("the recycler pod cannot be started: {}", fault.message())))
    }

    async fn wait(&self, volume: &Volume, pod: &Pod) -> Result<(), PluginError> {
        let Pod { namespace, path, uid, .. } = pod;
        let give_up = Instant::now() + self.settings.deadline(volume) + START_MAX;
        let mut told = HashSet::new();
        while Instant::now() < give_up {
            tokio::time::sleep(POLL).await;
            self.tell(volume, namespace, uid, &mut told).await;
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

    /// Deletes the pod of another recycle, whichever it is.
    async fn delete_old(&self, path: &str) -> Result<(), PluginError> {
        match rest::json(&self.client, http::Method::GET, path, None).await {
            Ok(pod) => self.delete(path, pod["metadata"]["uid"].as_str().unwrap_or_default()).await,
            Err(Fault::Refused { code: 404, .. }) => Ok(()),
            Err(fault) => Err(failed(format!("failed to read old recycler pod: {}", fault.message()))),
        }
    }

    /// Deletes the pod of that UID. Another one of its name is left to whoever has created it.
    async fn delete(&self, path: &str, uid: &str) -> Result<(), PluginError> {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
        match rest::json(&self.client, http::Method::DELETE, path, Some(options)).await {
            Ok(_) | Err(Fault::Refused { code: 404 | 409, .. }) => Ok(()),
            Err(fault) => Err(failed(format!("failed to delete recycler pod: {}", fault.message()))),
        }
    }
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

    #[test]
    fn a_template_that_cannot_be_gated_or_has_no_volume_is_refused() {
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
