//! Test kit: what tests of more than one crate share.
//!
//! - [`volume`], [`claim`], [`class`] and [`plugin`] make objects of `bindery-core`; [`json`] makes the same
//!   in JSON, for tests that speak to an API server, and [`words`] changes objects by text, for tables of
//!   cases. A test states only the fields that it is about.
//! - `InMemoryApi` (feature `api`, because crates below the controller have no use for it) is an API server
//!   behind the binder's port, with versions, conflicts, finalizers, faults by script, and a log of requests.
//! - `NoEnvironment` (feature `store`) answers a session of the store in tests without plugins.
//! - `upstream` (feature `api`) makes an engine in own mode see claims as upstream's binder does.
//! - [`Scripted`] is an engine that calls a function.
//! - [`write_volume`] and [`write_claim`] change an object as the API server does.
//! - `Authority` (feature `certificates`) signs certificates of servers and clients.
//! - `module` (feature `modules`) makes matchers in WebAssembly, also broken ones.
//! - `policy` (feature `policy`) makes a policy of a native matcher, and `reclaim_rule` a rule of a native
//!   reclaimer; the kit has several of both.
//! - `OciRegistry` (feature `registry`) is a registry of the OCI distribution API on loopback, honest or not.
//! - `poll` (feature `waiting`) waits for state that no event reports.
//! - [`Choices`] and [`check_all`] make random tests that their seed repeats.
//! - [`Logged`] captures log lines, [`allow_files`] raises the limit of open files, [`resident_kib`] and
//!   [`peak_kib`] read the memory of a process, [`percentiles`] sums up measured values.

#[cfg(feature = "api")]
mod api;
#[cfg(feature = "certificates")]
mod authority;
#[cfg(feature = "policy")]
mod burning;
#[cfg(feature = "store")]
mod environment;
mod files;
pub mod json;
mod logged;
#[cfg(feature = "policy")]
mod matchers;
mod memory;
#[cfg(feature = "modules")]
pub mod module;
mod objects;
mod percentiles;
mod random;
#[cfg(feature = "policy")]
mod reclaimers;
#[cfg(feature = "registry")]
mod registry;
mod scripted;
#[cfg(feature = "api")]
pub mod upstream;
#[cfg(feature = "waiting")]
mod waiting;
pub mod words;
mod writes;

#[cfg(feature = "api")]
pub use api::{Change, Fault, Faults, InMemoryApi, NOW, Objects, VOLUME_PROTECTION};
#[cfg(feature = "certificates")]
pub use authority::Authority;
#[cfg(feature = "policy")]
pub use burning::Burning;
#[cfg(feature = "store")]
pub use environment::NoEnvironment;
pub use files::allow_files;
pub use logged::Logged;
#[cfg(feature = "policy")]
pub use matchers::{APP, AllowsAll, AtMostTwice, Blocking, Fails, Fewest, Larger, SameZone, ZONE, policy};
pub use memory::{peak_kib, resident_kib};
pub use objects::{claim, class, gib, plugin, volume};
pub use percentiles::percentiles;
pub use random::{Choices, check_all, number_from_env, seeded_runner};
#[cfg(feature = "policy")]
pub use reclaimers::{ByLabel, KEEP, keeps_labelled, reclaim_rule};
#[cfg(feature = "registry")]
pub use registry::{OciRegistry, Referrers, RegistrySettings, Reply};
pub use scripted::Scripted;
#[cfg(feature = "waiting")]
pub use waiting::poll;
pub use writes::{steer_claim, steer_volume, write_claim, write_volume};
