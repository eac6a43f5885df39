//! Scrubs volumes with a pod (policy Recycle, which upstream has deprecated).

mod settings;

use std::collections::HashSet;
use std::time::Duration;

use bindery_controller::{Note, PluginError};
use bindery_core::{EventType, Regarding, Volume, VolumeTarget};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::settings::{GATE, gates, is_gated};
pub use self::settings::{RECYCLER_IMAGE, RecyclerSettings, TemplateError};
use super::failed;
use super::live::{check_released, live_source};
use crate::client::ApiClient;
use crate::events::Events;
use crate::keys::FIELD_MANAGER;
use crate::port::Clock;
use crate::rest::{self, Fault};

/// Pause between attempts to remove the pods of earlier leaders, which delays the first decision.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Longest time for each request of that. A leader that has not begun after 20 s leaves the Lease to another
/// replica, and a dead connection must not cost that.
const TAKE_OVER_MAX: Duration = Duration::from_secs(5);
/// Pause between two reads of the pod. A pod takes seconds, and recycling is rare.
const POLL: Duration = Duration::from_secs(2);
/// Time that a pod may take to start, in addition to its deadline, which counts from its start. Upstream
/// waits for ever, so a pod that cannot be scheduled blocks its volume until it is deleted by hand.
const START_MAX: Duration = Duration::from_secs(600);

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

impl Recycler {
    /// A recycler that runs pods in the cluster of this client, and reports their events through `events`.
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
