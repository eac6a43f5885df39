//! An in-process Kubernetes API for the kinds that Bindery uses, with faults, on a virtual clock.
//!
//! A [`Sim`] holds volumes, claims, classes, pods, nodes, namespaces, events, leases and CSI objects; it
//! also stores services and workloads, and runs none. It answers requests as kube-apiserver 1.36 does:
//! resource versions and conflicts, watches with bookmarks and expiry, paging, finalizers and graceful
//! deletion, status subresources, patches, server-side apply, validation, tables, discovery and OpenAPI.
//! There are two ways in, which share all code behind them:
//!
//! - [`Sim::service`] is a tower service that replaces the connection of a `kube::Client`;
//! - [`Sim::serve`] answers HTTP/1.1 and HTTP/2 on a socket, for `kubectl`.
//!
//! *Guarantees*: a run repeats exactly. Names and UIDs come from a seed, time from a [`Clock`]. There are no
//! background tasks: controllers run within the write that triggers them. All requests are validated;
//! [`Sim::seed`], [`Sim::put`] and [`Sim::remove`], which stand for earlier writes and for other actors, are
//! not.
//!
//! *Absences*: no authentication and authorisation, no `managedFields` before the first server-side apply
//! of an object. The garbage collector acts only when an owner goes. The last of duplicate fields counts,
//! regardless of `fieldValidation`. Refusals have no warnings. Unknown fields of deletion options are
//! ignored.
//!
//! *Structure*: a request passes `http` (route, faults, form of the answer), `verbs` (decoding, defaults,
//! admission), `validate`, `storage`, and `watch` for its readers.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use bindery_sim::{FaultRule, Sim, SimOptions};
//! use serde_json::json;
//!
//! let sim = Sim::new(SimOptions::default());
//! sim.seed([json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v1"}})]).unwrap();
//! sim.faults().add(FaultRule::new("get", "persistentvolumes").fail(500, "InternalError", "injected"));
//! assert_eq!(sim.objects("persistentvolumes").len(), 1);
//! # }
//! ```

mod clock;
mod controllers;
mod faults;
mod field;
mod fields;
mod http;
mod object;
mod protobuf;
mod quantity;
mod registry;
mod schema;
mod selectors;
mod sim;
mod state;
mod status;
mod storage;
mod validate;
mod verbs;
mod watch;

pub use clock::Clock;
pub use faults::{FaultRule, Faults, GUARD_HEADER, GUARD_LIVE_READ};
pub use http::route::Verb;
pub use http::{AnswerLost, SimBody, SimService};
pub use schema::normalise;
pub use sim::{LoggedRequest, RequestLog, SeedError, Sim, SimOptions};
pub use storage::Snapshot;
