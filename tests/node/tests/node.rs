//! Bindery on a whole cluster: real pods, scheduled by the real scheduler, use volumes that `bindery serve`
//! bound. All tests but the one that kills it share a cluster.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "node/csi.rs"]
mod csi;
#[path = "node/delayed.rs"]
mod delayed;
#[path = "node/killed.rs"]
mod killed;
#[path = "node/recycle.rs"]
mod recycle;
#[path = "node/servers.rs"]
mod servers;
