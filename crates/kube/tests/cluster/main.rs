//! The binder on a simulated cluster: the same code, requests and watches as on a real one.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod binding;
mod faults;
mod lease;
mod pauses;
mod reclaim;
mod recycle;
mod takeover;
mod telling;
mod watching;
mod wire;
mod world;
