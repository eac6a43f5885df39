//! The binder on a simulated cluster, with the requests and watches of a real one.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod binding;
mod events;
mod faults;
mod handover;
mod lease;
mod network;
mod pauses;
mod reclaim;
mod recycle;
mod simulated;
mod takeover;
mod watching;
