//! NFS volumes (upstream's `pkg/volume/nfs`): recycled, and nothing else.

use bindery_controller::{Order, Plugin, PluginError};
use bindery_core::{Plugin as Description, PluginOperation, Text, Volume};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;

use super::live::live_source;
use super::recycler::{Recycler, recycling_is_off};
use crate::client::ApiClient;
use crate::request::Template;

/// Name of the NFS plugin.
pub const NFS: &str = "kubernetes.io/nfs";

/// Serves volumes of source `nfs`.
pub struct Nfs {
    client: ApiClient,
    recycler: Option<Recycler>,
}

impl Nfs {
    /// Recycles by `recycler`; without one, that is off.
    pub fn new(client: impl Into<ApiClient>, recycler: Option<Recycler>) -> Self {
        Self { client: client.into().limited(), recycler }
    }
}

impl Plugin<Template> for Nfs {
    fn describe(&self) -> Description {
        Description {
            name: NFS.into(),
            provisions: false,
            deletes: false,
            recycles: true,
            mount_options: true,
        }
    }

    fn supports(&self, volume: &Volume) -> bool {
        &*volume.source == "nfs"
    }

    fn ready(&self, operation: PluginOperation) -> Result<(), Text> {
        match operation {
            PluginOperation::Recycle if self.recycler.is_some() => Ok(()),
            PluginOperation::Recycle => Err(recycling_is_off().into()),
            _ => Err(format!("volume plugin {NFS:?} cannot do this").into()),
        }
    }

    fn provision<'a>(&'a self, _: &'a Order) -> BoxFuture<'a, Result<Template, PluginError>> {
        cannot()
    }

    fn discard<'a>(&'a self, _: &'a Template) -> BoxFuture<'a, Result<(), PluginError>> {
        cannot()
    }

    fn delete<'a>(&'a self, _: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        cannot()
    }

    fn take_over(&self) -> BoxFuture<'_, ()> {
        Recycler::take_over(self.recycler.as_ref()).boxed()
    }

    fn recycle<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        async move {
            let recycler = self.recycler.as_ref().ok_or_else(|| failed(recycling_is_off()))?;
            let source = live_source(&self.client, volume, "nfs").await?;
            let (server, path) = (&source["server"], &source["path"]);
            recycler.run(volume, json!({"nfs": {"server": server, "path": path}})).await
        }
        .boxed()
    }
}

fn cannot<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T, PluginError>> {
    futures::future::ready(Err(failed(format!("volume plugin {NFS:?} cannot do this")))).boxed()
}

fn failed(text: String) -> PluginError {
    PluginError::Failed(text.into())
}
