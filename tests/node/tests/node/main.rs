//! Bindery on a whole cluster: real pods, scheduled by the real scheduler, use volumes that `bindery serve`
//! bound. All tests but the one that kills it share a cluster.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod csi;
mod delayed;
mod killed;
mod recycle;
mod servers;
