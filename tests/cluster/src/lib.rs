//! A real cluster for tests and benchmarks: etcd, kube-apiserver, and if wanted upstream's controller
//! manager, on loopback.
//!
//! The functions of [`ControlPlane`] return errors, for benchmarks. Those of [`Cluster`] and [`Replica`]
//! panic if a test must fail. A control plane starts in about five seconds. Servers are killed when they are
//! dropped, and by the kernel when the process that holds them dies. A [`Proxy`] in front of the API server
//! makes faults. [`snapshot`] reads all objects for the checker of invariants. A [`Stock`] fills a cluster
//! with many objects.
//!
//! This is not part of the kit, because it depends on kube and hyper, which tests without a cluster need not
//! compile.

mod clock;
mod cluster;
mod control_plane;
mod objects;
mod observed;
mod policies;
mod proxy;
mod replica;
mod requests;
mod server;
mod stock;
mod waiting;

pub use bindery_servers::{free_port, run};
pub use clock::Clock;
pub use cluster::Cluster;
pub use control_plane::{ControlPlane, Manager, Programs, client_of};
pub use objects::{
    folders_in, is_bound, is_bound_to, is_event, is_in_phase, make_folder, phase, provisioning_in,
    remove_folder,
};
pub use observed::{snapshot, snapshot_without_stock};
pub use policies::{PolicyApi, condition};
pub use proxy::{Faults, NoFaults, Proxy, Request, RequestFault, Response, ResponseFault};
pub use replica::{Replica, assert_replays, refused};
pub use requests::{kubeconfig, request};
pub use server::Server;
pub use stock::{BY_HAND, FREE_SIZE, STOCK, Stock, free_name, pair_name};
pub use waiting::{LATE_BODY, Object, PATIENCE, in_time, poll, until};
