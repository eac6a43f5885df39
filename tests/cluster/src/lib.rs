//! A real control plane for tests and benchmarks: etcd and kube-apiserver on loopback, and upstream's
//! controller manager where it is wanted.
//!
//! [`ControlPlane::start`] takes about five seconds. Everything it starts ends with it: the servers are
//! killed when it is dropped, and by the kernel when the process that holds it dies. A [`Proxy`] in front of
//! it makes faults, and [`snapshot`] is what it looks like to a checker that knows nothing of Bindery.

mod clock;
mod control_plane;
mod observed;
mod proxy;
mod server;

pub use bindery_servers::free_port;
pub use clock::Clock;
pub use control_plane::{ControlPlane, Manager, Programs};
pub use observed::snapshot;
pub use proxy::{After, Answered, Asked, Before, Fair, Proxy, Weather};
pub use server::Server;
