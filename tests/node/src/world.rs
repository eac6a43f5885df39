//! Objects of the cluster, made and waited for.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by panicking")]

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::IMAGE;

/// How long anything may take before the test gives up: a slow machine takes seconds, and kubelet a minute or
/// two to bring a changed Secret to a pod.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often it is looked whether something has come about.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A cluster.
pub struct World {
    /// The client of all below.
    pub client: kube::Client,
    /// Volumes.
    pub volumes: Api<PersistentVolume>,
    /// Claims of the namespace `default`.
    pub claims: Api<PersistentVolumeClaim>,
    /// Pods of the namespace `default`.
    pub pods: Api<Pod>,
    events: Api<Event>,
    /// What else there is to see when something never comes about.
    told: Box<dyn Fn() -> String + Send + Sync>,
}

/// What [`World`] can wait for.
pub trait Kind:
    Clone + Debug + DeserializeOwned + Serialize + Send + kube::Resource<DynamicType = ()> + 'static
{
}

impl<K> Kind for K where
    K: Clone + Debug + DeserializeOwned + Serialize + Send + kube::Resource<DynamicType = ()> + 'static
{
}

impl World {
    /// The cluster of a client. `told` says what else there is to see when something never comes about: logs.
    pub fn new(client: kube::Client, told: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self {
            volumes: Api::all(client.clone()),
            claims: Api::default_namespaced(client.clone()),
            pods: Api::default_namespaced(client.clone()),
            events: Api::all(client.clone()),
            client,
            told: Box::new(told),
        }
    }

    /// Creates a class with policy Delete.
    pub async fn create_class(&self, name: &str, provisioner: &str, mode: &str) {
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        let class = json!({
            "metadata": {"name": name}, "provisioner": provisioner,
            "reclaimPolicy": "Delete", "volumeBindingMode": mode,
        });
        create(&classes, class).await;
    }

    /// Creates a volume that is a folder of this machine.
    pub async fn create_volume(&self, name: &str, spec: Value) {
        let mut volume = json!({"metadata": {"name": name}, "spec": spec});
        volume["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
        create(&self.volumes, volume).await;
    }

    /// Creates a claim for 1 GiB.
    pub async fn create_claim(&self, name: &str, class: &str) {
        let claim = json!({
            "metadata": {"name": name},
            "spec": {
                "storageClassName": class,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        create(&self.claims, claim).await;
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

    /// Waits until a pod has done its work.
    pub async fn until_done(&self, pod: &str) {
        let has_ended = |pod: &Pod| matches!(phase(pod), Some("Succeeded" | "Failed"));
        let pod = self.until(&self.pods, pod, has_ended).await;
        assert_eq!(phase(&pod), Some("Succeeded"), "{:#?}", pod.status);
    }

    /// Waits until a claim is bound; answers its volume's name.
    pub async fn until_bound(&self, claim: &str) -> String {
        let claim = self.until(&self.claims, claim, |claim| claim_phase(claim) == Some("Bound")).await;
        claim.spec.unwrap().volume_name.unwrap()
    }

    /// Waits until an event of this reason is told of an object of this name.
    pub async fn until_event(&self, name: &str, reason: &str) -> Event {
        let chosen = ListParams::default().fields(&format!("involvedObject.name={name},reason={reason}"));
        let look = async || self.events.list(&chosen).await.unwrap().items.pop();
        self.until_seen(&format!("an event {reason} of {name}"), look).await
    }

    /// Looks until there is something to see, and answers it.
    pub async fn until_seen<T>(&self, what: &str, look: impl AsyncFn() -> Option<T>) -> T {
        let seen = async {
            let mut looks = tokio::time::interval(LOOK_EVERY);
            loop {
                looks.tick().await;
                if let Some(seen) = look().await {
                    return seen;
                }
            }
        };
        let seen = tokio::time::timeout(PATIENCE, seen).await;
        seen.unwrap_or_else(|_| panic!("{what}: it never comes about\n{}", self.told()))
    }

    /// Waits until something holds of an object, and returns the object.
    pub async fn until<K: Kind>(&self, api: &Api<K>, name: &str, holds: impl Fn(&K) -> bool) -> K {
        self.until_so(api, name, |object| object.is_some_and(&holds)).await.unwrap()
    }

    /// Waits until something holds of an object, or of its absence.
    async fn until_so<K: Kind>(
        &self,
        api: &Api<K>,
        name: &str,
        holds: impl Fn(Option<&K>) -> bool,
    ) -> Option<K> {
        let come_about = async {
            let mut tries = tokio::time::interval(LOOK_EVERY);
            loop {
                tries.tick().await;
                // It fails when a watch breaks off, as one may whose server is slow.
                if let Ok(object) = await_condition(api.clone(), name, &holds).await {
                    return object;
                }
            }
        };
        match tokio::time::timeout(PATIENCE, come_about).await {
            Ok(object) => object,
            Err(_) => self.give_up(api, name).await,
        }
    }

    /// Deletes an object and waits until it is gone.
    pub async fn delete<K: Kind>(&self, api: &Api<K>, name: &str) {
        let uid = api.get(name).await.unwrap().uid().unwrap();
        api.delete(name, &DeleteParams::default()).await.unwrap();
        self.until_gone(api, name, &uid).await;
    }

    /// Waits until the object of this name and UID is gone.
    pub async fn until_gone<K: Kind>(&self, api: &Api<K>, name: &str, uid: &str) {
        self.until_so(api, name, |object| object.is_none_or(|it| it.uid().as_deref() != Some(uid))).await;
    }

    /// What else there is to see when something never comes about.
    pub fn told(&self) -> String {
        (self.told)()
    }

    /// Fails with all that there is to see of an object.
    async fn give_up<K: Kind>(&self, api: &Api<K>, name: &str) -> ! {
        let object = serde_json::to_string_pretty(&api.get_opt(name).await.unwrap()).unwrap();
        let told = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let events = self.events.list(&told).await.unwrap().items.into_iter();
        let events: Vec<_> = events.filter_map(|event| event.message).collect();
        panic!("{name} stays {object}\n{}\n{}", events.join("\n"), self.told())
    }
}

async fn create<K: Kind>(api: &Api<K>, object: Value) {
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// Phase of a claim.
pub fn claim_phase(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.status.as_ref()?.phase.as_deref()
}

/// Phase of a volume.
pub fn volume_phase(volume: &PersistentVolume) -> Option<&str> {
    volume.status.as_ref()?.phase.as_deref()
}
