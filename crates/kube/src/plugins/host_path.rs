//! hostPath volumes (upstream's `pkg/volume/hostpath`): for single-node test clusters.

use std::path::PathBuf;
use std::sync::Arc;

use bindery_controller::{Order, Plugin, PluginError};
use bindery_core::{Plugin as Description, PluginOperation, Text, Uid, Volume, VolumeMode};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::failed;
use super::folders::{Folders, Neighbour};
use super::live::live_source;
use super::recycler::{Recycler, recycling_is_off};
use crate::client::ApiClient;
use crate::request::{self, Template};
use crate::rest;

/// Name of the plugin.
pub const HOST_PATH: &str = "kubernetes.io/host-path";
/// Most volumes in one answer.
const PAGE: u32 = 500;

/// Serves volumes of source `hostPath`.
///
/// Makes and deletes folders on the binder's machine, below one folder that the operator names; without it,
/// nothing is provisioned or deleted. Upstream deletes any path that matches `/tmp/.+`. This plugin deletes a
/// folder only if it made it for that volume, and no other volume names it, a path in it or a path above it.
pub struct HostPath {
    client: ApiClient,
    folders: Option<Arc<Folders>>,
    recycler: Option<Recycler>,
}

impl HostPath {
    /// A plugin that provisions below `root`, an absolute path, and recycles with `recycler`. Either may be
    /// missing; the plugin then does not do that.
    pub fn new(client: impl Into<ApiClient>, root: Option<PathBuf>, recycler: Option<Recycler>) -> Self {
        let folders = root.map(|root| Arc::new(Folders::new(root)));
        Self { client: client.into().limited(), folders, recycler }
    }

    async fn make(&self, order: &Order) -> Result<Template, PluginError> {
        let folders = Arc::clone(self.folders()?);
        if order.claim.mode == VolumeMode::Block {
            return Err(failed("hostPath does not support block volume provisioning"));
        }
        let class = request::segment(&order.class).map_err(|error| failed(error.to_string()))?;
        let path = format!("/apis/storage.k8s.io/v1/storageclasses/{class}");
        let class = rest::json(&self.client, http::Method::GET, &path, None)
            .await
            .map_err(|fault| failed(format!("storage class {:?} cannot be read: {fault}", order.class)))?;
        let name = order.name.clone();
        let path = blocking(move || folders.make(&name)).await?;
        let modes: Vec<&str> = order.claim.access_modes.iter().map(|mode| mode.name()).collect();
        Ok(Template(json!({
            "metadata": {"annotations": {"kubernetes.io/createdby": "hostpath-dynamic-provisioner"}},
            "spec": {
                "accessModes": modes,
                "capacity": {"storage": order.claim.request.to_string()},
                "hostPath": {"path": path},
                "persistentVolumeReclaimPolicy": class["reclaimPolicy"].as_str().unwrap_or("Delete"),
            },
        })))
    }

    /// Deletes the folder of a volume. Only the volume with that UID may name the folder.
    async fn remove(&self, name: Text, uid: Option<&Uid>, path: &Value) -> Result<(), PluginError> {
        let folders = Arc::clone(self.folders()?);
        let path = path.as_str().ok_or_else(|| failed("the volume has no spec.hostPath.path"))?;
        let path = PathBuf::from(path);
        let neighbours = self.neighbours(uid).await?;
        blocking(move || folders.remove(&name, &path, &neighbours)).await
    }

    /// The paths on nodes that other volumes name, from a consistent list.
    async fn neighbours(&self, uid: Option<&Uid>) -> Result<Vec<Neighbour>, PluginError> {
        let (mut neighbours, mut next) = (Vec::new(), String::new());
        loop {
            let path = format!("/api/v1/persistentvolumes?limit={PAGE}&continue={}", rest::encode(&next));
            let page = rest::json(&self.client, http::Method::GET, &path, None).await;
            let page = page.map_err(|fault| {
                failed(format!("the volumes cannot be listed, and one may name the same folder: {fault}"))
            })?;
            if page["kind"] != "PersistentVolumeList" {
                return Err(failed("the list of volumes makes no sense, and one may name the same folder"));
            }
            for volume in page["items"].as_array().into_iter().flatten() {
                let (meta, spec) = (&volume["metadata"], &volume["spec"]);
                if uid.is_some_and(|uid| meta["uid"] == *uid.0) {
                    continue;
                }
                let named = [&spec["hostPath"]["path"], &spec["local"]["path"]];
                neighbours.extend(named.into_iter().filter_map(Value::as_str).map(|path| Neighbour {
                    volume: meta["name"].as_str().unwrap_or_default().to_owned(),
                    path: path.into(),
                }));
            }
            match page["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => next = token.to_owned(),
                _ => return Ok(neighbours),
            }
        }
    }

    fn folders(&self) -> Result<&Arc<Folders>, PluginError> {
        self.folders.as_ref().ok_or_else(|| failed(disabled()))
    }
}

impl Plugin<Template> for HostPath {
    fn describe(&self) -> Description {
        Description {
            name: HOST_PATH.into(),
            provisions: true,
            deletes: true,
            recycles: true,
            mount_options: false,
        }
    }

    fn supports(&self, volume: &Volume) -> bool {
        &*volume.source == "hostPath"
    }

    fn ready(&self, operation: PluginOperation) -> Result<(), Text> {
        match operation {
            PluginOperation::Provision | PluginOperation::Delete if self.folders.is_none() => {
                Err(disabled().into())
            }
            PluginOperation::Recycle if self.recycler.is_none() => Err(recycling_is_off().into()),
            PluginOperation::Provision | PluginOperation::Delete | PluginOperation::Recycle => Ok(()),
        }
    }

    fn provision<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<Template, PluginError>> {
        self.make(order).boxed()
    }

    fn discard<'a>(&'a self, template: &'a Template) -> BoxFuture<'a, Result<(), PluginError>> {
        async move {
            let path = &template.0["spec"]["hostPath"]["path"];
            // The folder has the name that the volume was to get. No volume names it but one that was created
            // after all.
            let name = path.as_str().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
            self.remove(name.into(), None, path).await
        }
        .boxed()
    }

    fn delete<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        async move {
            let source = live_source(&self.client, volume).await?;
            self.remove(volume.name.clone(), Some(&volume.uid), &source["path"]).await
        }
        .boxed()
    }

    fn take_over(&self) -> BoxFuture<'_, ()> {
        Recycler::take_over(self.recycler.as_ref()).boxed()
    }

    fn recycle<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        Recycler::recycle(self.recycler.as_ref(), volume, &["path"]).boxed()
    }
}

fn disabled() -> String {
    format!(
        "volume plugin {HOST_PATH:?} is disabled; name the folder that it may use by bindery serve \
         --host-path"
    )
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, PluginError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(format!("the folder could not be worked on: {error}"))).map_err(failed)
}
