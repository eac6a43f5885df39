//! Policies and engines that are cluster objects (`policy.bindery.dev`): their watches, their modules in
//! ConfigMaps, and their status.

mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bindery_core::{EventType, Timestamp};
use futures::{FutureExt as _, StreamExt as _};
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::reflector::{self, store::Writer};
use kube::runtime::{WatchStreamExt as _, watcher};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};

pub use self::watches::PolicyWatches;
use crate::client::ApiClient;
use crate::events::{self, body};
use crate::read::{self, ReadError};
use crate::request::config_map_path;
use crate::rest;

const GROUP: &str = "policy.bindery.dev";
const VERSION: &str = "v1alpha1";
/// The kinds with their plurals.
const KINDS: [(&str, &str); 3] =
    [("Engine", "engines"), ("MatchPolicy", "matchpolicies"), ("ReclaimPolicy", "reclaimpolicies")];
/// How long a write of status may take.
const STATUS_MAX: Duration = Duration::from_secs(10);
/// Longest time for a page of a list, for which a new leader waits. After 20 s it leaves the Lease to another
/// replica, and a dead connection must not cost that.
const LIST_MAX: Duration = Duration::from_secs(8);

/// A key of the binary data of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigMapKey {
    /// Namespace of the ConfigMap.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The key.
    pub key: String,
}

/// The engines and policies of a cluster, as they are watched.
pub struct PolicyObjects {
    client: ApiClient,
    kinds: [KindWatch; KINDS.len()],
    config_maps: Mutex<BTreeMap<(String, String), Watched>>,
    changed: Arc<Notify>,
    /// Notifies the watches that new lists are wanted.
    lists: watch::Sender<()>,
}

struct KindWatch {
    resource: ApiResource,
    objects: reflector::Store<DynamicObject>,
    /// When the last bytes came.
    heard: Arc<Mutex<Option<Instant>>>,
    /// Why the last list or watch failed.
    fault: Mutex<Option<String>>,
}

/// The watch of one ConfigMap.
struct Watched {
    /// `metadata.resourceVersion`; `None` before the first list, and after a deletion. A module whose
    /// ConfigMap is deleted stays loaded.
    version: Arc<Mutex<Option<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PolicyObjects {
    /// The objects of the cluster of this client, and their watches.
    pub fn new(client: &ApiClient) -> (Arc<Self>, PolicyWatches) {
        let mut writers = Vec::new();
        let kinds = KINDS.map(|(kind, plural)| {
            let resource =
                ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural);
            let writer = Writer::new(resource.clone());
            let objects = writer.as_reader();
            writers.push(writer);
            KindWatch { resource, objects, heard: Arc::default(), fault: Mutex::default() }
        });
        let (config_maps, changed, lists) = Default::default();
        let objects = Arc::new(Self { client: client.clone(), kinds, config_maps, changed, lists });
        (Arc::clone(&objects), PolicyWatches { objects, writers })
    }

    /// Lists everything that is watched anew. After a restore of etcd a watch from a remembered version is
    /// silent, or goes on with other objects.
    pub fn list_again(&self) {
        self.lists.send_replace(());
        for (name, watched) in &mut *self.config_maps.lock() {
            *watched = self.watch(name);
        }
    }

    /// Seconds since the last bytes of each kind's list or watch; only of kinds that have received any.
    pub fn silences(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let kinds = KINDS.iter().zip(&self.kinds);
        kinds.filter_map(|((name, _), kind)| Some((*name, (*kind.heard.lock())?.elapsed().as_secs())))
    }

    /// Waits until an object, or a ConfigMap that is followed, may have changed.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Why not all kinds are listed yet; `None` once they are.
    pub fn awaited(&self) -> Option<String> {
        let kind = self.kinds.iter().find(|kind| kind.objects.wait_until_ready().now_or_never().is_none())?;
        let fault = kind.fault.lock().clone().map(|fault| format!(": {fault}")).unwrap_or_default();
        Some(format!("the first list of {}.{GROUP}{fault}", kind.resource.plural))
    }

    /// The objects, without `status` and managedFields, with their status beside; by kind and name.
    pub fn all(&self) -> Vec<(Value, Value)> {
        let mut all: Vec<_> = self.kinds.iter().flat_map(|kind| kind.objects.state()).collect();
        all.sort_by_key(|object| {
            (object.types.clone().map(|types| types.kind), object.metadata.name.clone())
        });
        all.into_iter().map(|object| split(serde_json::to_value(&*object).unwrap_or_default())).collect()
    }

    /// The same as the API server has them now; none where it does not serve the kinds.
    pub async fn list(&self) -> Result<Vec<(Value, Value)>, ReadError> {
        let (client, mut all) = (self.client.within(LIST_MAX), Vec::new());
        for KindWatch { resource, .. } in &self.kinds {
            let collection = format!("/apis/{}/{}", resource.api_version, resource.plural);
            let items = match read::list(&client, &collection).await {
                Err(ReadError::Absent(_)) => continue,
                items => items?,
            };
            for mut item in items {
                // Items of a list have neither.
                item["apiVersion"] = resource.api_version.clone().into();
                item["kind"] = resource.kind.clone().into();
                all.push(split(item));
            }
        }
        Ok(all)
    }

    /// Applies a merge patch (RFC 7386) to an object, and returns the object.
    pub async fn patch(&self, kind: &str, name: &str, patch: &Value) -> Result<Value, ReadError> {
        let resource = self.resource(kind).map_err(ReadError::Absent)?;
        let collection = format!("/apis/{}/{}", resource.api_version, resource.plural);
        read::merge(&self.client, &collection, name, patch).await
    }

    /// Watches these ConfigMaps from now on, and no others.
    pub fn follow(&self, wanted: &BTreeSet<(String, String)>) {
        let mut watched = self.config_maps.lock();
        watched.retain(|name, _| wanted.contains(name));
        for name in wanted {
            watched.entry(name.clone()).or_insert_with(|| self.watch(name));
        }
    }

    /// The version of a ConfigMap that is followed, if it is known and exists.
    pub fn version(&self, namespace: &str, name: &str) -> Option<String> {
        let watched = self.config_maps.lock();
        watched.get(&(namespace.to_owned(), name.to_owned()))?.version.lock().clone()
    }

    fn watch(&self, (namespace, name): &(String, String)) -> Watched {
        let api = Api::<PartialObjectMeta<ConfigMap>>::namespaced(self.client.kube(), namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut events = watcher(api, config).default_backoff().boxed();
        let (version, changed) = (Arc::<Mutex<Option<String>>>::default(), Arc::clone(&self.changed));
        let (known, config_map) = (Arc::clone(&version), format!("{namespace}/{name}"));
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let now = match event {
                    Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                        object.metadata.resource_version
                    }
                    Ok(watcher::Event::Delete(_)) => None,
                    Ok(watcher::Event::Init | watcher::Event::InitDone) => continue,
                    Err(error) => {
                        let error = rest::with_causes(&error);
                        tracing::warn!(config_map, error, "the ConfigMap cannot be watched; trying again");
                        continue;
                    }
                };
                *known.lock() = now;
                changed.notify_one();
            }
        });
        Watched { version, task }
    }

    /// Reads a module from a ConfigMap, and the version of the ConfigMap where it could be read.
    ///
    /// # Errors
    ///
    /// The inner one: one sentence that names the ConfigMap and what is wrong.
    pub async fn module(&self, at: &ConfigMapKey) -> (Result<Vec<u8>, String>, Option<String>) {
        let ConfigMapKey { namespace, name, key } = at;
        let read = match config_map_path(namespace, name) {
            Ok(path) => rest::json(&self.client, Method::GET, &path, None).await.map_err(|it| it.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let object = match read {
            Ok(object) => object,
            Err(why) => return (Err(format!("ConfigMap {namespace}/{name} cannot be read: {why}")), None),
        };
        let bytes = match object["binaryData"][key].as_str().map(|data| BASE64_STANDARD.decode(data)) {
            Some(bytes) => {
                bytes.map_err(|error| format!("ConfigMap {namespace}/{name}, key {key:?}: {error}"))
            }
            None => Err(format!("ConfigMap {namespace}/{name} has no binaryData of key {key:?}")),
        };
        (bytes, object["metadata"]["resourceVersion"].as_str().map(str::to_owned))
    }

    /// Creates an event of an object, in the namespace `default`.
    pub async fn record(
        &self,
        (kind, name, uid): (&str, &str, &str),
        event_type: EventType,
        texts: (&str, &str),
        now: Timestamp,
    ) -> Result<(), String> {
        let involved = json!({
            "apiVersion": self.resource(kind)?.api_version,
            "kind": kind,
            "name": name,
            "uid": uid,
        });
        let metadata = json!({"generateName": format!("{name}."), "namespace": "default"});
        let event = body(metadata, involved, event_type, texts, now);
        let path = "/api/v1/namespaces/default/events";
        let created = timeout(STATUS_MAX, events::send(&self.client, Method::POST, path, &event)).await;
        created.map_err(not_written)?.map_err(|fault| fault.to_string())
    }

    fn resource(&self, kind: &str) -> Result<&ApiResource, String> {
        let kind = self.kinds.iter().find(|known| known.resource.kind == kind);
        kind.map(|kind| &kind.resource).ok_or_else(|| "there is no such kind".to_owned())
    }

    /// Applies a JSON patch (RFC 6902) to the status of an object. The patch may test other fields, but not
    /// change them.
    pub async fn patch_status(&self, kind: &str, name: &str, patch: &Value) -> Result<(), String> {
        let ApiResource { api_version, plural, .. } = self.resource(kind)?;
        let path = format!("/apis/{api_version}/{plural}/{}/status", rest::encode(name));
        // The client counts a server that answers late; the timeout also ends the wait before the request.
        let client = self.client.within(STATUS_MAX);
        let patched = timeout(STATUS_MAX, rest::json(&client, Method::PATCH, &path, Some(patch))).await;
        patched.map_err(not_written)?.map(drop).map_err(|fault| fault.to_string())
    }

    /// Writes the part of an object's status that belongs to a field manager, unless it is another object by
    /// now.
    pub async fn write_status(
        &self,
        kind: &str,
        name: &str,
        uid: &str,
        manager: &str,
        status: &Value,
    ) -> Result<(), String> {
        let resource = self.resource(kind)?;
        let object = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "uid": uid},
            "status": status,
        });
        let api = Api::<DynamicObject>::all_with(self.client.kube(), resource);
        let parameters = PatchParams::apply(manager).force();
        let patch = Patch::Apply(&object);
        let written = timeout(STATUS_MAX, api.patch_status(name, &parameters, &patch)).await;
        written.map_err(not_written)?.map(drop).map_err(|error| error.to_string())
    }
}

fn not_written(_: Elapsed) -> String {
    format!("not written within {STATUS_MAX:?}")
}

/// An object without status and managedFields, and its status.
fn split(mut object: Value) -> (Value, Value) {
    let status = object.as_object_mut().and_then(|fields| fields.remove("status"));
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    (object, status.unwrap_or_default())
}
