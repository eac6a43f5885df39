//! The user of a scenario: a client that nothing disturbs.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::Mode;
use bindery_kit::json::{claim, merged, volume};
use bindery_kube::FOREIGN_WRITER;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::interval;
use tower::ServiceExt as _;

use crate::delay::pass;
use crate::plugin::Assets;
use crate::replica::{LEASE_NAME, LEASE_NAMESPACE};
use crate::timeline::Timeline;

pub(crate) const VOLUMES: &str = "persistentvolumes";
pub(crate) const CLAIMS: &str = "persistentvolumeclaims";
/// The driver of an external provisioner.
pub(crate) const DRIVER: &str = "disk.vendor.example";
/// After this time a replica that leads has decided about what there is.
pub(crate) const SETTLED: Duration = Duration::from_secs(10);

/// A client without disturbances.
pub(crate) struct User {
    pub(crate) assets: Assets,
    pub(crate) timeline: Arc<Timeline>,
    waits_for: Mutex<String>,
}

impl User {
    pub(crate) fn new(assets: &Assets, timeline: &Arc<Timeline>) -> Self {
        Self { assets: assets.clone(), timeline: Arc::clone(timeline), waits_for: Mutex::default() }
    }

    /// The condition that the scenario waited for last.
    pub(crate) fn waits_for(&self) -> String {
        self.waits_for.lock().clone()
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Value) {
        let content = if method == Method::PATCH { "merge-patch+json" } else { "json" };
        self.send_as(method, path, content, body).await;
    }

    async fn send_as(&self, method: Method, path: &str, content: &str, body: Value) {
        self.timeline.until_up().await;
        let content = format!("application/{content}");
        let request = Request::builder().method(&method).uri(path).header("content-type", content);
        let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
        let answer = self.timeline.sim.service().oneshot(request).await.unwrap();
        let code = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        if !code.is_success() && self.timeline.is_restored() {
            // The object is gone or back: this scenario ends here.
            std::future::pending::<()>().await;
        }
        assert!(code.is_success(), "{method} {path}: {}", String::from_utf8_lossy(&body));
        self.timeline.note_volumes();
    }

    pub(crate) async fn create(&self, object: Value) {
        let path = match object["kind"].as_str().unwrap() {
            "PersistentVolume" => "/api/v1/persistentvolumes",
            "PersistentVolumeClaim" => "/api/v1/namespaces/default/persistentvolumeclaims",
            "Pod" => "/api/v1/namespaces/default/pods",
            "Node" => "/api/v1/nodes",
            _ => "/apis/storage.k8s.io/v1/storageclasses",
        };
        self.send(Method::POST, path, object.clone()).await;
        self.assets.adopt(&object);
    }

    /// Creates a volume by server-side apply, so that the simulator keeps its managedFields.
    pub(crate) async fn apply(&self, volume: Value) {
        let name = volume["metadata"]["name"].as_str().unwrap();
        let path = path(VOLUMES, name) + "?fieldManager=user";
        self.send_as(Method::PATCH, &path, "apply-patch+yaml", volume).await;
    }

    pub(crate) async fn delete(&self, resource: &str, name: &str) {
        self.send(Method::DELETE, &path(resource, name), json!({})).await;
    }

    pub(crate) async fn patch(&self, resource: &str, name: &str, change: Value) {
        self.send(Method::PATCH, &path(resource, name), change).await;
    }

    /// Changes an object past validation, as another client did before.
    pub(crate) async fn overwrite(&self, resource: &str, name: &str, change: Value) {
        self.timeline.until_up().await;
        self.timeline.sim.put(merged(self.existing(resource, name).await, change));
    }

    /// Removes an object past its finalizers.
    pub(crate) async fn remove(&self, resource: &str, name: &str) {
        self.timeline.until_up().await;
        self.existing(resource, name).await;
        self.timeline.sim.remove(resource, namespace(resource), name);
    }

    async fn existing(&self, resource: &str, name: &str) -> Value {
        let object = self.object(resource, name);
        if object.is_null() && self.timeline.is_restored() {
            // This scenario ends here.
            std::future::pending::<()>().await;
        }
        assert!(!object.is_null(), "there is no object {name} of {resource}");
        object
    }

    pub(crate) fn object(&self, resource: &str, name: &str) -> Value {
        self.timeline.sim.object(resource, namespace(resource), name).unwrap_or_default()
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        what.clone_into(&mut self.waits_for.lock());
        let mut ticks = interval(Duration::from_secs(1));
        while !holds(self) {
            ticks.tick().await;
        }
    }

    /// Restarts the replicas in a mode, one after the other.
    pub(crate) async fn switch(&self, mode: Mode) {
        format!("the replicas run in mode {mode:?}").clone_into(&mut self.waits_for.lock());
        self.timeline.switch(mode).await;
        pass(SETTLED).await;
    }

    /// Turns upstream's binder on or off.
    pub(crate) fn turn_upstream(&self, is_on: bool) {
        self.timeline.upstream.send_replace(is_on);
    }

    /// Waits until an object has a phase.
    pub(crate) async fn until_phase(&self, resource: &str, name: &str, phase: &str) {
        let holds = |user: &Self| user.object(resource, name)["status"]["phase"] == phase;
        self.until(&format!("{resource} {name} is {phase}"), holds).await;
    }

    /// Waits until a replica leads and has decided about what there is.
    pub(crate) async fn until_led(&self) {
        self.until("a replica leads", |user| user.lease().is_some()).await;
        pass(SETTLED).await;
    }

    fn lease(&self) -> Option<Value> {
        self.timeline.sim.object("leases", Some(LEASE_NAMESPACE), LEASE_NAME)
    }

    /// Whether the Lease has the mark that another binder was seen.
    pub(crate) fn is_marked(&self) -> bool {
        self.lease().is_some_and(|lease| !lease["metadata"]["annotations"][FOREIGN_WRITER].is_null())
    }

    /// Removes that mark, as the operator does after the other binder is off.
    pub(crate) fn acknowledge(&self) {
        if self.is_marked() {
            let unmarked = json!({"metadata": {"annotations": {FOREIGN_WRITER: null}}});
            self.lease().into_iter().for_each(|lease| self.timeline.sim.put(merged(lease, unmarked.clone())));
        }
    }

    pub(crate) async fn until_bound(&self, claim: &str) {
        self.until_phase(CLAIMS, claim, "Bound").await;
    }

    pub(crate) async fn until_gone(&self, resource: &str, name: &str) {
        self.until(&format!("{resource} {name} is gone"), |user| user.object(resource, name).is_null()).await;
    }

    /// Creates a volume, and claim `c1`, and waits until the claim is bound.
    pub(crate) async fn bind(&self, volume: Value) {
        self.create(volume).await;
        self.create(claim("c1", json!({}))).await;
        self.until_bound("c1").await;
    }

    /// Waits until a claim is Pending after the time that a decision takes.
    pub(crate) async fn until_waits(&self, claim: &str) {
        self.until_led().await;
        self.until_phase(CLAIMS, claim, "Pending").await;
    }

    /// Waits for the reservation of a volume, up to the next point: before a further write of the bind.
    pub(crate) async fn until_reserved(&self, volume: &str) {
        format!("volume {volume} is reserved").clone_into(&mut self.waits_for.lock());
        while self.object(VOLUMES, volume)["spec"]["claimRef"]["uid"].is_null() {
            self.timeline.until_next_point().await;
        }
    }

    /// Does what the provisioner of a driver does: makes the volume that a claim asks for.
    pub(crate) async fn provision(&self, name: &str, driver: &str) {
        let asked = |user: &Self| {
            let key = "volume.kubernetes.io/storage-provisioner";
            user.object(CLAIMS, name)["metadata"]["annotations"][key] == driver
        };
        self.until(&format!("claim {name} asks for a volume"), asked).await;
        let owner = self.object(CLAIMS, name);
        let uid = owner["metadata"]["uid"].as_str().unwrap();
        let volume = volume(
            &format!("pvc-{uid}"),
            json!({
                "metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": driver}},
                "spec": {
                    "hostPath": null,
                    "csi": {"driver": driver, "volumeHandle": uid},
                    "storageClassName": owner["spec"]["storageClassName"],
                    "persistentVolumeReclaimPolicy": "Delete",
                    "claimRef": reference(&owner),
                },
            }),
        );
        self.create(volume).await;
    }
}

pub(crate) fn path(resource: &str, name: &str) -> String {
    let prefix = if resource == VOLUMES { "" } else { "namespaces/default/" };
    format!("/api/v1/{prefix}{resource}/{name}")
}

fn namespace(resource: &str) -> Option<&'static str> {
    (resource != VOLUMES).then_some("default")
}

/// A pod on a node that uses a claim.
pub(crate) fn pod(name: &str, claim: &str) -> Value {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    let containers = json!([{"name": "main", "image": "example.com/main"}]);
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": "n1", "volumes": volumes, "containers": containers},
    })
}

/// The claimRef of a claim.
pub(crate) fn reference(claim: &Value) -> Value {
    let (name, uid) = (&claim["metadata"]["name"], &claim["metadata"]["uid"]);
    let kind = "PersistentVolumeClaim";
    json!({"apiVersion": "v1", "kind": kind, "namespace": "default", "name": name, "uid": uid})
}
