//! Cases on a real API server.
//!
//! A recorded world is written down as nobody could have made it: with UIDs of its own, with statuses, on an
//! API server without validation. Here it is made by requests that a real one accepts: claims first, so that
//! pointers to them can carry the UIDs that it gave; statuses and deletions after that. What it leaves is
//! translated back, and compared as ever. What cannot be said to a real API server is [`Scene::set`]'s
//! reason, by which such cases are counted.

mod errors;
mod translation;

use std::collections::BTreeSet;

use anyhow::Result;
use bindery_cluster::{ControlPlane, Manager, Programs, Proxy};
use bindery_core::Text;
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use self::errors::Errors;
use self::translation::Translation;
use crate::case::{Case, Objects};
use crate::compare;
use crate::world::{CLAIMS, NAMESPACE, VOLUMES, name};

/// Admission plugins that would change what a case has: they are another test's matter.
const UNPLUGGED: &str = "--disable-admission-plugins=StorageObjectInUseProtection,DefaultStorageClass";
/// Objects that are deleted at the same time.
const AT_ONCE: usize = 16;

/// A real API server, behind a proxy that makes the errors of a case.
pub struct Cluster {
    direct: kube::Client,
    proxied: kube::Client,
    proxy: Proxy,
    _plane: ControlPlane,
}

/// A world on a cluster.
pub(crate) struct Scene<'a> {
    cluster: &'a Cluster,
    translation: Translation,
}

impl Cluster {
    /// Starts etcd, kube-apiserver and the proxy.
    ///
    /// # Errors
    ///
    /// One of them does not start.
    pub async fn start() -> Result<Self> {
        let plane = ControlPlane::start_with(Programs::from_env()?, Manager::Off, &[UNPLUGGED]).await?;
        let proxy = Proxy::start(&plane).await?;
        let kubeconfig = Kubeconfig::read_from(proxy.kubeconfig())?;
        let mut config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        // An error of the case is met once.
        config.default_retry = false;
        let proxied = kube::Client::try_from(config)?;
        Ok(Self { direct: plane.client().await?, proxied, proxy, _plane: plane })
    }

    /// Removes what the last case has left.
    ///
    /// # Errors
    ///
    /// An object stays.
    pub(crate) async fn clear(&self) -> Result<()> {
        self.proxy.set_weather(bindery_cluster::Fair);
        for resource in [CLAIMS, VOLUMES, "pods", "storageclasses"] {
            let gone = self.list(resource).await?.into_iter().map(|object| self.remove(resource, object));
            stream::iter(gone).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
        }
        Ok(())
    }

    async fn remove(&self, resource: &str, object: Value) -> Result<()> {
        let path = format!("{}/{}", path(resource)?, name(&object));
        if object["metadata"]["finalizers"].is_array() {
            self.send(Method::PATCH, &path, &json!({"metadata": {"finalizers": null}})).await?;
        }
        match self.send(Method::DELETE, &path, &json!({"gracePeriodSeconds": 0})).await {
            // It went with its last finalizer.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            result => Ok(result.map(|_| ())?),
        }
    }

    async fn list(&self, resource: &str) -> Result<Vec<Value>> {
        let mut list: Value = self.send(Method::GET, path(resource)?, &Value::Null).await?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => anyhow::bail!("the list of {resource} has no items"),
        }
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Value, kube::Error> {
        let content_type =
            if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .body(body)
            .map_err(kube::Error::HttpError)?;
        self.direct.request(request).await
    }
}

/// Why a case cannot be set on a real API server.
pub type Refusal = String;

impl<'a> Scene<'a> {
    /// What a disk is called that has no name in a recording.
    pub(crate) const DISK: &'static str = "disk";

    /// Makes the world of a case on a cluster that has been cleared; or says why none can be made.
    ///
    /// # Errors
    ///
    /// The cluster does not answer.
    pub(crate) async fn set(cluster: &'a Cluster, case: &Case) -> Result<Result<Self, Refusal>> {
        if let Some(why) = translation::obstacle(case) {
            return Ok(Err(why));
        }
        let mut scene = Self { cluster, translation: Translation::default() };
        match scene.make(case).await {
            Ok(()) => {}
            Err(SetError::Refused(why)) => return Ok(Err(why)),
            Err(SetError::Failed(error)) => return Err(error),
        }
        let made = scene.translation.back(scene.held().await?);
        let differences = compare::objects(&translation::possible(&case.initial), &made);
        if let Err(why) = scene.translation.learn(differences) {
            return Ok(Err(why));
        }
        cluster.proxy.set_weather(Errors::new(&case.api_errors));
        Ok(Ok(scene))
    }

    /// The case as a server can hold it, after a run in which the phases of these volumes were written: it
    /// discards the status that a volume is created with, until one is written.
    pub(crate) fn possible(case: &Case, phased: &BTreeSet<Text>) -> Case {
        let (initial, mut end) = (translation::possible(&case.initial), translation::possible(&case.end));
        for volume in &mut end.volumes {
            let is_old = initial.volumes.iter().any(|known| name(known) == name(volume));
            if !is_old && !phased.contains(name(volume)) {
                volume["status"]["phase"] = "Pending".into();
            }
        }
        Case { initial, end, ..case.clone() }
    }

    /// A client that meets the errors of the case.
    pub(crate) fn client(&self) -> kube::Client {
        self.cluster.proxied.clone()
    }

    /// All objects of a resource, as they are.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    pub(crate) async fn objects(&self, resource: &str) -> Result<Vec<Value>> {
        let mut objects = self.cluster.list(resource).await?;
        if resource == CLAIMS || resource == "pods" {
            objects.retain(|object| object["metadata"]["namespace"] == NAMESPACE);
        }
        Ok(objects)
    }

    /// What the recording would have of the world's end.
    ///
    /// What was deleted and waits for finalizers of others is gone there: the recorded API server knew no
    /// finalizers.
    pub(crate) fn translated(&self, expected: &Objects, mut found: Objects) -> Objects {
        found.volumes.retain(|volume| {
            let is_deleted = volume["metadata"]["deletionTimestamp"].is_string();
            !is_deleted || expected.volumes.iter().any(|kept| name(kept) == name(volume))
        });
        self.translation.without_defaults(expected, self.translation.back(found))
    }

    /// The recording's name of a volume.
    pub(crate) fn recorded(&self, name: &str) -> Text {
        self.translation.back_name(name).into()
    }

    async fn held(&self) -> Result<Objects> {
        Ok(Objects { volumes: self.objects(VOLUMES).await?, claims: self.objects(CLAIMS).await? })
    }

    async fn make(&mut self, case: &Case) -> Result<(), SetError> {
        for object in case.surroundings() {
            let made = self.create(translation::filled_surroundings(object.clone())).await?;
            if made["kind"] == "Pod" {
                self.finish("pods", &object).await?;
            }
        }
        let initial = translation::filled(&case.initial);
        for claim in &initial.claims {
            let made = self.create(typed(claim, "PersistentVolumeClaim")).await?;
            self.translation.met(claim, &made)?;
        }
        for volume in &initial.volumes {
            let made = self.create(self.translation.forth(typed(volume, "PersistentVolume"))).await?;
            self.translation.met(volume, &made)?;
        }
        for (resource, objects) in [(CLAIMS, &initial.claims), (VOLUMES, &initial.volumes)] {
            for object in objects {
                self.finish(resource, object).await?;
            }
        }
        Ok(())
    }

    async fn create(&self, object: Value) -> Result<Value, SetError> {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let mut object = object;
        if let Some(metadata) = object["metadata"].as_object_mut() {
            // Given by the server, and deleted by a request of its own.
            metadata
                .retain(|key, _| !matches!(key.as_str(), "uid" | "resourceVersion" | "deletionTimestamp"));
        }
        let resource = match &*kind {
            "PersistentVolume" => VOLUMES,
            "PersistentVolumeClaim" => CLAIMS,
            "StorageClass" => "storageclasses",
            _ => "pods",
        };
        let sent = self.cluster.send(Method::POST, path(resource)?, &object).await;
        sent.map_err(|error| SetError::of(&kind, error))
    }

    /// Gives an object its status, and deletes it where the recording has it so.
    async fn finish(&self, resource: &str, object: &Value) -> Result<(), SetError> {
        let path = format!("{}/{}", path(resource)?, name(object));
        let status = translation::settable(&object["status"]);
        if status.as_object().is_some_and(|status| !status.is_empty()) {
            let change = json!({"status": status});
            let sent = self.cluster.send(Method::PATCH, &format!("{path}/status"), &change).await;
            sent.map_err(|error| SetError::of(resource, error))?;
        }
        if object["metadata"]["deletionTimestamp"].is_string() {
            let sent = self.cluster.send(Method::DELETE, &path, &Value::Null).await;
            sent.map_err(|error| SetError::of(resource, error))?;
        }
        Ok(())
    }
}

/// Why a world was not made.
enum SetError {
    /// The API server does not take such an object.
    Refused(Refusal),
    /// Something that says nothing about the case.
    Failed(anyhow::Error),
}

impl SetError {
    /// The reason names the kind and the field, and not the object, so that cases can be counted by it.
    fn of(kind: &str, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 422 => {
                let causes = status.details.as_ref().map(|details| details.causes.as_slice());
                let fields = causes
                    .unwrap_or_default()
                    .iter()
                    .map(|cause| format!("{} ({})", cause.field, cause.reason));
                let fields: Vec<_> = fields.collect();
                Self::Refused(format!("the API server refuses a {kind}: {}", fields.join(", ")))
            }
            error => Self::Failed(error.into()),
        }
    }
}

impl From<anyhow::Error> for SetError {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

fn typed(object: &Value, kind: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = "v1".into();
    object["kind"] = kind.into();
    object
}

/// Where objects of a resource are.
fn path(resource: &str) -> Result<&'static str> {
    Ok(match resource {
        VOLUMES => "/api/v1/persistentvolumes",
        CLAIMS => "/api/v1/namespaces/default/persistentvolumeclaims",
        "pods" => "/api/v1/namespaces/default/pods",
        "storageclasses" => "/apis/storage.k8s.io/v1/storageclasses",
        _ => anyhow::bail!("no case has {resource}"),
    })
}
