//! hostPath volumes (upstream's `pkg/volume/hostpath`): for single-node test clusters.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use bindery_controller::{Order, Plugin, PluginError};
use bindery_core::{Plugin as Description, PluginOperation, Text, Volume, VolumeMode};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::live::live_source;
use super::recycler::{Recycler, recycling_is_off};
use crate::client::ApiClient;
use crate::request::{self, Template};
use crate::rest;

/// Name of the plugin.
pub const HOST_PATH: &str = "kubernetes.io/host-path";

/// Serves volumes of source `hostPath`.
///
/// Folders are made and deleted on the machine that the binder runs on, below one folder that the operator
/// names; where none is named, nothing is provisioned or deleted. (Upstream deletes whatever matches
/// `/tmp/.+`; here a path outside of that folder is refused.)
pub struct HostPath {
    client: ApiClient,
    root: Option<PathBuf>,
    recycler: Option<Recycler>,
}

impl HostPath {
    /// Provisions below `root` and recycles by `recycler`; without one of them, that is off.
    pub fn new(client: impl Into<ApiClient>, root: Option<PathBuf>, recycler: Option<Recycler>) -> Self {
        Self { client: client.into().limited(), root, recycler }
    }

    async fn make(&self, order: &Order) -> Result<Template, PluginError> {
        let root = self.root()?;
        if order.claim.mode == VolumeMode::Block {
            return Err(failed("hostPath does not support block volume provisioning"));
        }
        let class = request::segment(&order.class).map_err(|error| failed(&error.to_string()))?;
        let path = format!("/apis/storage.k8s.io/v1/storageclasses/{class}");
        let class = rest::json(&self.client, http::Method::GET, &path, None)
            .await
            .map_err(|fault| failed(&format!("storage class {:?} cannot be read: {fault}", order.class)))?;
        let path = root.join(&*order.name);
        create_folder(path.clone()).await?;
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

    async fn remove(&self, path: &Value) -> Result<(), PluginError> {
        let root = self.root()?;
        let path = path.as_str().ok_or_else(|| failed("the volume has no spec.hostPath.path"))?;
        let path = PathBuf::from(path);
        if !is_child(root, &path) {
            return Err(failed(&format!(
                "only folders directly below {} are deleted, and the volume's is {}",
                root.display(),
                path.display()
            )));
        }
        blocking(move || match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(failed(&format!("{}: {error}", path.display())))
            }
            _ => Ok(()),
        })
        .await
    }

    fn root(&self) -> Result<&Path, PluginError> {
        self.root.as_deref().ok_or_else(|| failed(&disabled()))
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
            PluginOperation::Provision | PluginOperation::Delete if self.root.is_none() => {
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
        self.remove(&template.0["spec"]["hostPath"]["path"]).boxed()
    }

    fn delete<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        async move {
            let source = live_source(&self.client, volume, "hostPath").await?;
            self.remove(&source["path"]).await
        }
        .boxed()
    }

    fn take_over(&self) -> BoxFuture<'_, ()> {
        Recycler::take_over(self.recycler.as_ref()).boxed()
    }

    fn recycle<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        async move {
            let recycler = self.recycler.as_ref().ok_or_else(|| failed(&recycling_is_off()))?;
            let source = live_source(&self.client, volume, "hostPath").await?;
            recycler.run(volume, json!({"hostPath": {"path": source["path"]}})).await
        }
        .boxed()
    }
}

fn failed(text: &str) -> PluginError {
    PluginError::Failed(text.into())
}

fn disabled() -> String {
    format!(
        "volume plugin {HOST_PATH:?} is disabled; name the folder that it may use by bindery serve --host-path"
    )
}

/// Whether `path` is a folder directly below `root`, by its text: a plain name and nothing that leads
/// elsewhere.
fn is_child(root: &Path, path: &Path) -> bool {
    path.parent() == Some(root)
        && matches!(path.components().next_back(), Some(std::path::Component::Normal(_)))
}

async fn create_folder(path: PathBuf) -> Result<(), PluginError> {
    blocking(move || {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(&path)
            .map_err(|error| failed(&format!("{}: {error}", path.display())))
    })
    .await
}

async fn blocking(
    work: impl FnOnce() -> Result<(), PluginError> + Send + 'static,
) -> Result<(), PluginError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(failed(&format!("the folder could not be worked on: {error}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_its_own_are_deleted() {
        let root = Path::new("/srv/volumes");
        assert!(is_child(root, Path::new("/srv/volumes/pvc-1")));
        for path in [
            "/srv/volumes",
            "/srv/volumes/",
            "/srv/volumes/..",
            "/srv/volumes/a/b",
            "/tmp/x",
            "/",
            "",
            "pvc-1",
        ] {
            assert!(!is_child(root, Path::new(path)), "{path}");
        }
    }
}
