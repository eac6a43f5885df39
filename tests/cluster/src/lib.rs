//! A real control plane for tests and benchmarks: etcd, kube-apiserver, and if wanted upstream's controller
//! manager, on loopback.
//!
//! [`ControlPlane::start`] takes about five seconds. Its servers are killed when it is dropped, and by the
//! kernel when the process that holds it dies. A [`Proxy`] in front of it makes faults. [`snapshot`] reads
//! its objects for the checker of invariants.
//!
//! This is no part of the kit because it depends on kube and hyper, which tests without a cluster need not
//! compile.

mod clock;
mod control_plane;
mod observed;
mod proxy;
mod server;

pub use bindery_servers::free_port;
pub use clock::Clock;
pub use control_plane::{ControlPlane, Manager, Programs};
pub use observed::snapshot;
pub use proxy::{Faults, NoFaults, Proxy, Request, RequestFault, Response, ResponseFault};
pub use server::Server;
