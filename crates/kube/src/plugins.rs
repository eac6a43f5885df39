//! The in-tree plugins that ship: hostPath, and the recycler of NFS volumes.

mod folders;
mod host_path;
mod live;
mod nfs;
mod recycler;

use bindery_controller::PluginError;
use bindery_core::Text;

pub use host_path::{HOST_PATH, HostPath};
pub use nfs::{NFS, Nfs};
pub use recycler::{RECYCLER_IMAGE, Recycler, RecyclerSettings, TemplateError};

fn failed(why: impl Into<Text>) -> PluginError {
    PluginError::Failed(why.into())
}
