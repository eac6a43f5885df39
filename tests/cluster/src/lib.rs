//! A real control plane for tests and benchmarks: etcd and kube-apiserver on loopback, and upstream's controller manager
//! where it is wanted.
//!
//! [`ControlPlane::start`] takes about five seconds. Everything it starts ends with it: the servers are killed when it is
//! dropped, and by the kernel when the process that holds it dies.

mod control_plane;
mod server;

pub use control_plane::{ControlPlane, Manager, Programs, free_port};
pub use server::Server;
