//! NFS volumes (upstream's `pkg/volume/nfs`), which this plugin can only recycle.

use bindery_controller::{Order, Plugin, PluginError};
use bindery_core::{Plugin as Description, PluginOperation, Text, Volume};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use super::failed;
use super::recycler::{Recycler, recycling_is_off};
use crate::request::Template;

/// Name of the NFS plugin.
pub const NFS: &str = "kubernetes.io/nfs";

/// Serves volumes of source `nfs`.
pub struct Nfs {
    recycler: Option<Recycler>,
}

impl Nfs {
    /// A plugin that recycles with `recycler`; without one, recycling is off.
    pub fn new(recycler: Option<Recycler>) -> Self {
        Self { recycler }
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
            _ => Err(unsupported().into()),
        }
    }

    fn provision<'a>(&'a self, _: &'a Order) -> BoxFuture<'a, Result<Template, PluginError>> {
        ready(Err(failed(unsupported()))).boxed()
    }

    fn discard<'a>(&'a self, _: &'a Template) -> BoxFuture<'a, Result<(), PluginError>> {
        ready(Err(failed(unsupported()))).boxed()
    }

    fn delete<'a>(&'a self, _: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        ready(Err(failed(unsupported()))).boxed()
    }

    fn take_over(&self) -> BoxFuture<'_, ()> {
        Recycler::take_over(self.recycler.as_ref()).boxed()
    }

    fn recycle<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        Recycler::recycle(self.recycler.as_ref(), volume, &["server", "path"]).boxed()
    }
}

fn unsupported() -> String {
    format!("volume plugin {NFS:?} cannot do this")
}
