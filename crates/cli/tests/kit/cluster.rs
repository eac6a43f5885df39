//! A real control plane, and the volumes and claims in it.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;
use std::pin::pin;

use bindery_cluster::{ControlPlane, Manager, Programs, Proxy, snapshot};
use bindery_invariants::Snapshot;
use bindery_kit::json;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{PATIENCE, Replica, in_time, is_bound, is_bound_to, is_in_phase, poll};

pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    pub(crate) volumes: Api<PersistentVolume>,
    /// Those of the namespace `default`.
    pub(crate) claims: Api<PersistentVolumeClaim>,
}

impl Cluster {
    pub(crate) async fn start(manager: Manager) -> Self {
        Self::start_with(manager, &[]).await
    }

    /// Starts a cluster whose API server has further arguments.
    pub(crate) async fn start_with(manager: Manager, api_server: &[&str]) -> Self {
        let programs = Programs::from_env().unwrap();
        Self::connect(ControlPlane::start_with(programs, manager, api_server).await.unwrap()).await
    }

    /// A cluster with new clients: those from before a change of the API server's certificate do not trust
    /// it.
    pub(crate) async fn connect(plane: ControlPlane) -> Self {
        let client = plane.client().await.unwrap();
        let (volumes, claims) = (Api::all(client.clone()), Api::default_namespaced(client.clone()));
        Self { plane, client, volumes, claims }
    }

    pub(crate) async fn proxy(&self) -> Proxy {
        Proxy::start(&self.plane).await.unwrap()
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig()
    }

    /// Starts a replica.
    pub(crate) fn replica(&self, identity: &str) -> Replica {
        self.replica_with(identity, &[])
    }

    /// Starts a replica with further arguments.
    pub(crate) fn replica_with(&self, identity: &str, further: &[&str]) -> Replica {
        Replica::start(&self.kubeconfig(), identity, further, &[])
    }

    pub(crate) async fn create_volume(&self, name: &str, capacity: &str) {
        self.create_volume_with(name, json!({"capacity": {"storage": capacity}})).await;
    }

    /// Creates a volume, and waits until it is available.
    pub(crate) async fn create_available_volume(&self, name: &str, capacity: &str) {
        self.create_volume(name, capacity).await;
        self.until_volume(name, is_in_phase("Available")).await;
    }

    /// Creates a volume of a class, with a claimRef.
    pub(crate) async fn create_volume_of(&self, class: &str, name: &str, claim_ref: Value) {
        self.create_volume_with(name, json!({"storageClassName": class, "claimRef": claim_ref})).await;
    }

    /// Creates a volume of 1 GiB, with these fields of its spec.
    pub(crate) async fn create_volume_with(&self, name: &str, spec: Value) {
        let volume = object(json::volume(name, json!({"spec": spec})));
        self.volumes.create(&PostParams::default(), &volume).await.unwrap();
    }

    pub(crate) async fn create_claim(&self, name: &str, request: &str) {
        self.create_claim_with(name, json!({"resources": {"requests": {"storage": request}}})).await;
    }

    /// Creates a claim of a class, which may name a volume.
    pub(crate) async fn create_claim_of(&self, class: &str, name: &str, volume: Option<&str>) {
        self.create_claim_with(name, json!({"storageClassName": class, "volumeName": volume})).await;
    }

    /// Creates a claim of 1 GiB, with these fields of its spec.
    pub(crate) async fn create_claim_with(&self, name: &str, spec: Value) {
        self.try_claim(json!({"name": name}), spec, &PostParams::default()).await.unwrap();
    }

    /// Tries to create a claim of 1 GiB.
    pub(crate) async fn try_claim(
        &self,
        metadata: Value,
        spec: Value,
        parameters: &PostParams,
    ) -> kube::Result<PersistentVolumeClaim> {
        let claim = json::claim("", json!({"metadata": metadata, "spec": spec}));
        self.claims.create(parameters, &object(claim)).await
    }

    /// Creates a volume and a claim of 1 GiB with this name.
    pub(crate) async fn create_pair(&self, name: &str) {
        self.create_volume(name, "1Gi").await;
        self.create_claim(name, "1Gi").await;
    }

    /// Creates a volume and a claim of 1 GiB with this name, and waits until they are bound.
    pub(crate) async fn bind_pair(&self, name: &str) {
        self.create_pair(name).await;
        self.until_claim(name, is_bound_to(name)).await;
    }

    /// Creates a class whose volumes Bindery provisions below `--host-path`.
    pub(crate) async fn create_class(&self, name: &str) {
        self.create_class_with(name, json!({"provisioner": "kubernetes.io/host-path"})).await;
    }

    /// Creates a class of policy Delete, with these fields.
    pub(crate) async fn create_class_with(&self, name: &str, fields: Value) {
        let class = json::merged(json!({"metadata": {"name": name}, "reclaimPolicy": "Delete"}), fields);
        let classes = Api::<StorageClass>::all(self.client.clone());
        classes.create(&PostParams::default(), &object(class)).await.unwrap();
    }

    pub(crate) async fn delete_claim(&self, name: &str) {
        self.claims.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn set_finalizers(&self, volume: &str, finalizers: &[String]) {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        self.volumes.patch(volume, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the cluster has settled, and checks that there are that many claims, all bound.
    pub(crate) async fn check_pairs(&self, pairs: usize) {
        until_settled(&self.client, async |_| Vec::new()).await.unwrap();
        let claims = self.claims.list(&ListParams::default()).await.unwrap().items;
        assert_eq!((claims.len(), claims.iter().filter(|claim| is_bound(claim)).count()), (pairs, pairs));
    }

    pub(crate) async fn until_no_claim(&self, name: &str) {
        until_gone(&self.claims, name).await;
    }

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

    /// Kind and name of the object, type and reason of every event about a volume or a claim. Messages are
    /// left out: Bindery has its own.
    pub(crate) async fn events(&self) -> BTreeSet<[String; 4]> {
        let events = Api::<Event>::all(self.client.clone()).list(&ListParams::default()).await.unwrap();
        let events = events.into_iter().filter_map(|event| {
            let (kind, name) = (event.involved_object.kind?, event.involved_object.name?);
            let is_ours = ["PersistentVolume", "PersistentVolumeClaim"].contains(&&*kind);
            is_ours.then(|| [kind, name, event.type_.unwrap(), event.reason.unwrap()])
        });
        events.collect()
    }

    /// Waits for an event that satisfies a condition.
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
        in_time("the event comes", seen).await
    }
}

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// Waits until an object satisfies a condition, and returns it.
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

/// Waits until the checker, which shares no code with Bindery, finds no violation, and `further` finds
/// nothing either.
///
/// # Errors
///
/// What is still wrong when patience ends.
pub(crate) async fn until_settled(
    client: &Client,
    further: impl AsyncFn(&Snapshot) -> Vec<String>,
) -> Result<(), Vec<String>> {
    let mut wrong = Vec::new();
    let settled = poll(async || {
        let moment = snapshot(client).await.unwrap();
        wrong = moment.violations().iter().map(ToString::to_string).collect();
        wrong.extend(further(&moment).await);
        wrong.is_empty().then_some(())
    });
    settled.await.ok_or(wrong)
}
