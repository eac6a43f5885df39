//! A real cluster, with the objects of a test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::pin::pin;

use bindery_invariants::Snapshot;
use bindery_kit::json;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::objects::{is_bound, is_bound_to, is_in_phase};
use crate::waiting::until_gone;
use crate::{ControlPlane, Manager, PATIENCE, Programs, Proxy, Replica, poll, snapshot_without_stock, until};

/// A control plane, and clients of its administrator.
pub struct Cluster {
    /// Its servers.
    pub plane: ControlPlane,
    /// The client of all fields below.
    pub client: Client,
    /// Volumes.
    pub volumes: Api<PersistentVolume>,
    /// Claims of the namespace `default`.
    pub claims: Api<PersistentVolumeClaim>,
}

impl Cluster {
    /// Starts a cluster.
    pub async fn start(manager: Manager) -> Self {
        Self::start_with(manager, &[]).await
    }

    /// Starts a cluster whose API server has further arguments.
    pub async fn start_with(manager: Manager, api_server: &[&str]) -> Self {
        let programs = Programs::from_env().unwrap();
        Self::connect(ControlPlane::start_with(programs, manager, api_server).await.unwrap()).await
    }

    /// A cluster with new clients. Clients from before a change of the API server's certificate do not trust
    /// the new one.
    pub async fn connect(plane: ControlPlane) -> Self {
        let client = plane.client().await.unwrap();
        let (volumes, claims) = (Api::all(client.clone()), Api::default_namespaced(client.clone()));
        Self { plane, client, volumes, claims }
    }

    /// Starts a proxy in front of the API server.
    pub async fn proxy(&self) -> Proxy {
        Proxy::start(&self.kubeconfig()).await.unwrap()
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig()
    }

    /// Starts a replica.
    pub fn replica(&self, identity: &str) -> Replica {
        self.replica_with(identity, &[])
    }

    /// Starts a replica with further arguments.
    pub fn replica_with(&self, identity: &str, further: &[&str]) -> Replica {
        Replica::start(&self.kubeconfig(), identity, further, &[])
    }

    /// Creates a volume.
    pub async fn create_volume(&self, name: &str, capacity: &str) {
        self.create_volume_with(name, json!({"capacity": {"storage": capacity}})).await;
    }

    /// Creates a volume, and waits until it is available.
    pub async fn create_available_volume(&self, name: &str, capacity: &str) {
        self.create_volume(name, capacity).await;
        self.until_volume(name, is_in_phase("Available")).await;
    }

    /// Creates a volume of a class, with a claimRef.
    pub async fn create_volume_of(&self, class: &str, name: &str, claim_ref: Value) {
        self.create_volume_with(name, json!({"storageClassName": class, "claimRef": claim_ref})).await;
    }

    /// Creates a volume of 1 GiB, with these fields of its spec.
    pub async fn create_volume_with(&self, name: &str, spec: Value) {
        let volume = object(json::volume(name, json!({"spec": spec})));
        self.volumes.create(&PostParams::default(), &volume).await.unwrap();
    }

    /// Creates a claim.
    pub async fn create_claim(&self, name: &str, request: &str) {
        self.create_claim_with(name, json!({"resources": {"requests": {"storage": request}}})).await;
    }

    /// Creates a claim of a class, which may name a volume.
    pub async fn create_claim_of(&self, class: &str, name: &str, volume: Option<&str>) {
        self.create_claim_with(name, json!({"storageClassName": class, "volumeName": volume})).await;
    }

    /// Creates a claim of 1 GiB, with these fields of its spec.
    pub async fn create_claim_with(&self, name: &str, spec: Value) {
        self.try_claim(json!({"name": name}), spec, &PostParams::default()).await.unwrap();
    }

    /// Tries to create a claim of 1 GiB.
    pub async fn try_claim(
        &self,
        metadata: Value,
        spec: Value,
        parameters: &PostParams,
    ) -> kube::Result<PersistentVolumeClaim> {
        let claim = json::claim("", json!({"metadata": metadata, "spec": spec}));
        self.claims.create(parameters, &object(claim)).await
    }

    /// Creates a volume and a claim of 1 GiB with this name.
    pub async fn create_pair(&self, name: &str) {
        self.create_volume(name, "1Gi").await;
        self.create_claim(name, "1Gi").await;
    }

    /// Creates a volume and a claim of 1 GiB with this name, and waits until they are bound.
    pub async fn bind_pair(&self, name: &str) {
        self.create_pair(name).await;
        self.until_claim(name, is_bound_to(name)).await;
    }

    /// Creates pairs whose names have this prefix.
    pub async fn create_pairs(&self, prefix: &str, pairs: usize) {
        for pair in 0..pairs {
            self.create_pair(&format!("{prefix}{pair}")).await;
        }
    }

    /// Creates pairs whose names have this prefix, and waits until every claim is bound.
    pub async fn bind_pairs(&self, prefix: &str, pairs: usize) {
        self.create_pairs(prefix, pairs).await;
        self.until_pairs_are_bound(prefix, pairs).await;
    }

    /// Waits until every claim of these pairs is bound.
    pub async fn until_pairs_are_bound(&self, prefix: &str, pairs: usize) {
        for pair in 0..pairs {
            self.until_claim(&format!("{prefix}{pair}"), is_bound).await;
        }
    }

    /// Creates a class whose volumes Bindery provisions below `--host-path`.
    pub async fn create_class(&self, name: &str) {
        self.create_class_with(name, json!({"provisioner": "kubernetes.io/host-path"})).await;
    }

    /// Creates a class of policy Delete, with these fields.
    pub async fn create_class_with(&self, name: &str, fields: Value) {
        let class = json::merged(json!({"metadata": {"name": name}, "reclaimPolicy": "Delete"}), fields);
        let classes = Api::<StorageClass>::all(self.client.clone());
        classes.create(&PostParams::default(), &object(class)).await.unwrap();
    }

    /// Deletes a claim.
    pub async fn delete_claim(&self, name: &str) {
        self.claims.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Replaces the finalizers of a volume.
    pub async fn set_finalizers(&self, volume: &str, finalizers: &[String]) {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        self.volumes.patch(volume, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the cluster has settled, and checks that there are that many claims, all bound.
    pub async fn check_pairs(&self, pairs: usize) {
        self.until_settled(async |_| Vec::new()).await.unwrap();
        let claims = self.claims.list(&ListParams::default()).await.unwrap().items;
        assert_eq!((claims.len(), claims.iter().filter(|claim| is_bound(claim)).count()), (pairs, pairs));
    }

    /// Waits until the checker, which shares no code with Bindery, finds no violation, and `further` finds
    /// none either. Objects of a [`Stock`](crate::Stock) are left out.
    ///
    /// # Errors
    ///
    /// The violations when patience ends.
    pub async fn until_settled(
        &self,
        further: impl AsyncFn(&Snapshot) -> Vec<String>,
    ) -> Result<(), Vec<String>> {
        let mut wrong = vec!["no look at the cluster has ended".to_owned()];
        let settled = poll(async || {
            let moment = snapshot_without_stock(&self.client).await.unwrap();
            let mut found: Vec<_> = moment.violations().iter().map(ToString::to_string).collect();
            found.extend(further(&moment).await);
            // Assigned at once: patience may end during a look.
            wrong = found;
            wrong.is_empty().then_some(())
        });
        settled.await.ok_or(wrong)
    }

    /// Waits until a claim no longer exists.
    pub async fn until_no_claim(&self, name: &str) {
        until_gone(&self.claims, name).await;
    }

    /// Waits until a volume no longer exists.
    pub async fn until_no_volume(&self, name: &str) {
        until_gone(&self.volumes, name).await;
    }

    /// Waits until a volume satisfies a condition.
    pub async fn until_volume(
        &self,
        name: &str,
        holds: impl Fn(&PersistentVolume) -> bool,
    ) -> PersistentVolume {
        until(&self.volumes, name, holds).await
    }

    /// Waits until a claim satisfies a condition.
    pub async fn until_claim(
        &self,
        name: &str,
        holds: impl Fn(&PersistentVolumeClaim) -> bool,
    ) -> PersistentVolumeClaim {
        until(&self.claims, name, holds).await
    }

    /// Kind and name of the object, type and reason of every event about a volume or a claim. Messages are
    /// left out: Bindery has its own.
    pub async fn events(&self) -> BTreeSet<[String; 4]> {
        let events = Api::<Event>::all(self.client.clone()).list(&ListParams::default()).await.unwrap();
        let events = events.into_iter().filter_map(|event| {
            let (kind, name) = (event.involved_object.kind?, event.involved_object.name?);
            let is_ours = ["PersistentVolume", "PersistentVolumeClaim"].contains(&&*kind);
            is_ours.then(|| [kind, name, event.type_.unwrap(), event.reason.unwrap()])
        });
        events.collect()
    }

    /// Waits for an event that satisfies a condition.
    pub async fn until_event(&self, holds: impl Fn(&Event) -> bool) -> Event {
        let events = watcher(Api::<Event>::all(self.client.clone()), watcher::Config::default());
        let (mut events, mut others) = (pin!(events.default_backoff().applied_objects()), Vec::new());
        let seen = async {
            loop {
                // An error means that the watch was interrupted.
                let Ok(event) = events.next().await.unwrap() else { continue };
                if holds(&event) {
                    return event;
                }
                others.push(event.message);
            }
        };
        let in_time = timeout(PATIENCE, seen).await;
        in_time.unwrap_or_else(|_| panic!("the event does not come; others are {others:#?}"))
    }
}

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}
