//! The in-tree plugins that ship: hostPath, and the recycler of NFS volumes.

mod host_path;
mod recycler;

pub use host_path::{HOST_PATH, HostPath};
pub use recycler::{NFS, Nfs, RECYCLER_IMAGE, Recycler, RecyclerSettings};
