//! Objects of a cluster: creating them and waiting for them.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by panicking")]

use std::time::Duration;

use bindery_cluster::{Object, is_bound};
use bindery_kit::{json, poll};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};

use crate::IMAGE;

/// The time that anything may take. A slow machine takes seconds, and kubelet updates a pod's Secret after a
/// minute or two.
const TIME_MAX: Duration = Duration::from_secs(300);
/// The pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The objects of a cluster.
pub struct Objects {
    /// The client of all fields below.
    pub client: kube::Client,
    /// Volumes.
    pub volumes: Api<PersistentVolume>,
    /// Claims of the namespace `default`.
    pub claims: Api<PersistentVolumeClaim>,
    /// Pods of the namespace `default`.
    pub pods: Api<Pod>,
    events: Api<Event>,
    /// What a failed wait shows beside the object: logs.
    logs: Box<dyn Fn() -> String + Send + Sync>,
}

impl Objects {
    /// The objects that a client sees. A failed wait shows the logs.
    pub fn new(client: kube::Client, logs: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self {
            volumes: Api::all(client.clone()),
            claims: Api::default_namespaced(client.clone()),
            pods: Api::default_namespaced(client.clone()),
            events: Api::all(client.clone()),
            client,
            logs: Box::new(logs),
        }
    }

    /// Creates a class with policy Delete.
    pub async fn create_class(&self, name: &str, provisioner: &str, mode: &str) {
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        let change = json!({"reclaimPolicy": "Delete", "volumeBindingMode": mode});
        create(&classes, json::class(name, provisioner, change)).await;
    }

    /// Creates a volume of 1 GiB, with these fields of its spec.
    pub async fn create_volume(&self, name: &str, spec: Value) {
        create(&self.volumes, json::volume(name, json!({"spec": spec}))).await;
    }

    /// Creates a claim for 1 GiB.
    pub async fn create_claim(&self, name: &str, class: &str) {
        create(&self.claims, json::claim(name, json!({"spec": {"storageClassName": class}}))).await;
    }

    /// Creates a pod that writes a file into the claim's volume and ends.
    pub async fn create_writer(&self, name: &str, claim: &str, text: &str) {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "volumes": [{"name": "volume", "persistentVolumeClaim": {"claimName": claim}}],
                "containers": [{
                    "name": "writer",
                    "image": IMAGE,
                    "command": ["/bin/sh", "-c", format!("echo {text} > /volume/file")],
                    "volumeMounts": [{"name": "volume", "mountPath": "/volume"}],
                }],
            },
        });
        create(&self.pods, pod).await;
    }

    /// Waits until a pod has succeeded.
    pub async fn until_done(&self, pod: &str) {
        let has_ended = |pod: &Pod| matches!(phase(pod), Some("Succeeded" | "Failed"));
        let pod = self.until(&self.pods, pod, has_ended).await;
        assert_eq!(phase(&pod), Some("Succeeded"), "{:#?}", pod.status);
    }

    /// Waits until a claim is bound, and returns its volume's name.
    pub async fn until_bound(&self, claim: &str) -> String {
        let claim = self.until(&self.claims, claim, is_bound).await;
        claim.spec.unwrap().volume_name.unwrap()
    }

    /// Waits for an event with this reason about an object with this name.
    pub async fn until_event(&self, name: &str, reason: &str) -> Event {
        let chosen = ListParams::default().fields(&format!("involvedObject.name={name},reason={reason}"));
        let look = async || self.events.list(&chosen).await.unwrap().items.pop();
        self.until_found(&format!("an event {reason} of {name}"), look).await
    }

    /// Looks until there is something to return.
    pub async fn until_found<T>(&self, what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
        let found = poll(LOOK_EVERY, TIME_MAX, look).await;
        found.unwrap_or_else(|| panic!("waited in vain for {what}\n{}", self.logs()))
    }

    /// Waits until a condition holds for an object, and returns the object.
    pub async fn until<K: Object>(&self, api: &Api<K>, name: &str, holds: impl Fn(&K) -> bool) -> K {
        self.until_condition(api, name, |object| object.is_some_and(&holds)).await.unwrap()
    }

    /// Waits until a condition holds for an object, or for its absence.
    async fn until_condition<K: Object>(
        &self,
        api: &Api<K>,
        name: &str,
        holds: impl Fn(Option<&K>) -> bool,
    ) -> Option<K> {
        // It fails when its watch is interrupted.
        let look = async || await_condition(api.clone(), name, &holds).await.ok();
        match poll(LOOK_EVERY, TIME_MAX, look).await {
            Some(object) => object,
            None => self.give_up(api, name).await,
        }
    }

    /// Deletes an object and waits until it no longer exists.
    pub async fn delete<K: Object>(&self, api: &Api<K>, name: &str) {
        let uid = api.get(name).await.unwrap().uid().unwrap();
        api.delete(name, &DeleteParams::default()).await.unwrap();
        self.until_gone(api, name, &uid).await;
    }

    /// Waits until the object with this name and UID no longer exists.
    pub async fn until_gone<K: Object>(&self, api: &Api<K>, name: &str, uid: &str) {
        self.until_condition(api, name, |object| object.is_none_or(|it| it.uid().as_deref() != Some(uid)))
            .await;
    }

    /// The logs that a failed wait shows.
    pub fn logs(&self) -> String {
        (self.logs)()
    }

    /// Panics with an object, its events and the logs.
    async fn give_up<K: Object>(&self, api: &Api<K>, name: &str) -> ! {
        let object = api.get_opt(name).await.unwrap();
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let events = self.events.list(&about).await.unwrap().items.into_iter();
        let events: Vec<_> = events.filter_map(|event| event.message).collect();
        panic!("{name} stays {object:#?}\n{}\n{}", events.join("\n"), self.logs())
    }
}

async fn create<K: Object + Serialize>(api: &Api<K>, object: Value) {
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// Whether a pod is ready.
pub fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
