//! Cases on a real API server.
//!
//! A recording has UIDs of its own, statuses, and objects that validation refuses. Here its world is created
//! by requests that a real API server accepts: first claims, so that volumes can carry the UIDs that the
//! server gave them, then volumes, statuses and deletions. The result is translated back and compared. Where
//! the server cannot hold a world, [`Setup::create`] returns the reason, and cases are counted by reason.

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
use crate::execution::{CLAIMS, NAMESPACE, VOLUMES, name};

/// Admission plugins that would change the objects of a case.
const UNPLUGGED: &str = "--disable-admission-plugins=StorageObjectInUseProtection,DefaultStorageClass";
/// How many objects are deleted at the same time.
const AT_ONCE: usize = 16;

/// A real API server, and a proxy in front that makes the errors of a case.
pub struct Cluster {
    direct: kube::Client,
    proxied: kube::Client,
    proxy: Proxy,
    _plane: ControlPlane,
}

/// The objects of a case on a real API server.
pub(crate) struct Setup<'a> {
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
        let proxy = Proxy::start(&plane.kubeconfig()).await?;
        let kubeconfig = Kubeconfig::read_from(proxy.kubeconfig())?;
        let mut config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        // The binder must meet each error of the case, without retries in between.
        config.default_retry = false;
        let proxied = kube::Client::try_from(config)?;
        Ok(Self { direct: plane.client().await?, proxied, proxy, _plane: plane })
    }

    /// Removes the objects of the last case.
    ///
    /// # Errors
    ///
    /// An object stays.
    pub(crate) async fn clear(&self) -> Result<()> {
        self.proxy.set_faults(bindery_cluster::NoFaults);
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
            // The object was gone with its last finalizer.
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

/// Why a real API server cannot hold the world of a case.
pub type Refusal = String;

impl<'a> Setup<'a> {
    /// The name of a disk that has none in the recording.
    pub(crate) const DISK: &'static str = "disk";

    /// Creates the world of a case on a cluster without objects, or returns why the server cannot hold it.
    ///
    /// # Errors
    ///
    /// The cluster does not answer.
    pub(crate) async fn create(cluster: &'a Cluster, case: &Case) -> Result<Result<Self, Refusal>> {
        if let Some(why) = translation::obstacle(case) {
            return Ok(Err(why));
        }
        let mut setup = Self { cluster, translation: Translation::default() };
        match setup.make(case).await {
            Ok(()) => {}
            Err(SetError::Refused(why)) => return Ok(Err(why)),
            Err(SetError::Failed(error)) => return Err(error),
        }
        let made = setup.translation.back(setup.held().await?);
        let differences = compare::objects(&translation::possible(&case.initial), &made);
        if let Err(why) = setup.translation.learn(differences) {
            return Ok(Err(why));
        }
        cluster.proxy.set_faults(Errors::new(&case.api_errors));
        Ok(Ok(setup))
    }

    /// The case as a server can hold it, after a run that wrote the phases of these volumes. A server
    /// discards the status that a volume is created with.
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

    /// All objects of a resource.
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

    /// The final state of the world, in the form of the recording. Volumes that wait for finalizers of others
    /// are gone there, because the recorded API server had no finalizers.
    pub(crate) fn translated(&self, expected: &Objects, mut found: Objects) -> Objects {
        found.volumes.retain(|volume| {
            let is_deleted = volume["metadata"]["deletionTimestamp"].is_string();
            !is_deleted || expected.volumes.iter().any(|kept| name(kept) == name(volume))
        });
        self.translation.without_defaults(expected, self.translation.back(found))
    }

    /// The name of a volume in the recording.
    pub(crate) fn recorded(&self, name: &str) -> Text {
        self.translation.back_name(name).into()
    }

    async fn held(&self) -> Result<Objects> {
        Ok(Objects { volumes: self.objects(VOLUMES).await?, claims: self.objects(CLAIMS).await? })
    }

    async fn make(&mut self, case: &Case) -> Result<(), SetError> {
        for object in case.environment() {
            let made = self.post(translation::filled_environment(object.clone())).await?;
            if made["kind"] == "Pod" {
                self.finish("pods", &object).await?;
            }
        }
        let initial = translation::filled(&case.initial);
        for claim in &initial.claims {
            let made = self.post(typed(claim, "PersistentVolumeClaim")).await?;
            self.translation.met(claim, &made)?;
        }
        for volume in &initial.volumes {
            let made = self.post(self.translation.forth(typed(volume, "PersistentVolume"))).await?;
            self.translation.met(volume, &made)?;
        }
        for (resource, objects) in [(CLAIMS, &initial.claims), (VOLUMES, &initial.volumes)] {
            for object in objects {
                self.finish(resource, object).await?;
            }
        }
        Ok(())
    }

    async fn post(&self, object: Value) -> Result<Value, SetError> {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let mut object = object;
        if let Some(metadata) = object["metadata"].as_object_mut() {
            // The server sets these, and a request deletes the object.
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

    /// Sets the status of an object, and deletes it if it is deleted in the recording.
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

/// Why a world was not created.
enum SetError {
    /// The API server refuses the object.
    Refused(Refusal),
    /// The cause is not in the case.
    Failed(anyhow::Error),
}

impl SetError {
    /// The reason names the kind and the field, not the object, so that cases can be counted by it.
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

/// The path of a resource.
fn path(resource: &str) -> Result<&'static str> {
    Ok(match resource {
        VOLUMES => "/api/v1/persistentvolumes",
        CLAIMS => "/api/v1/namespaces/default/persistentvolumeclaims",
        "pods" => "/api/v1/namespaces/default/pods",
        "storageclasses" => "/apis/storage.k8s.io/v1/storageclasses",
        _ => anyhow::bail!("no case has {resource}"),
    })
}
