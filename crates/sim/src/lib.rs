//! An in-process Kubernetes API for the kinds that Bindery touches, with faults, on a virtual clock.
//!
//! A [`Sim`] holds volumes, claims, classes, pods, nodes, namespaces, events, leases and CSI objects, and
//! answers requests as kube-apiserver 1.36 does: resource versions and conflicts, watches with bookmarks and
//! expiry, paging, finalizers and graceful deletion, status subresources, three kinds of patch, validation,
//! tables, discovery and OpenAPI. It is reached in two ways that go the same path:
//!
//! - [`Sim::service`] is a tower service that a `kube::Client` takes in place of a connection;
//! - [`Sim::serve`] answers HTTP/1.1 and HTTP/2 on a socket, for `kubectl`.
//!
//! *Guarantees*: a run repeats exactly. Names and UIDs come from a seed, time from a [`Clock`]; there are no
//! background tasks: what upstream's protection controllers do happens within the write that causes it.
//! Requests never pass validation by; [`Sim::seed`], [`Sim::put`] and [`Sim::remove`], which stand for the
//! past and for other actors, do.
//!
//! *Absences*: no authentication and authorisation, no server-side apply (answered with 415), no garbage
//! collection of owned objects, no `managedFields`; of a field that is given twice the last one counts,
//! whatever `fieldValidation` says; refusals carry no warnings; unknown fields of deletion options are not
//! told.
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

mod admission;
mod body;
mod clock;
mod defaults;
mod discovery;
mod faults;
mod negotiate;
mod object;
mod openapi;
mod patch;
mod protection;
mod protobuf;
mod quantity;
mod registry;
mod request;
mod schema;
mod selectors;
mod serve;
mod service;
mod sim;
mod state;
mod status;
mod store;
mod table;
mod validate;
mod verbs;

pub use body::SimBody;
pub use clock::Clock;
pub use faults::{FaultAction, FaultRule, Faults, GUARD_HEADER, GUARD_LIVE_READ};
pub use request::Verb;
pub use schema::normalise;
pub use service::{AnswerLost, SimService};
pub use sim::{RequestRecord, SeedError, Sim, SimOptions};
