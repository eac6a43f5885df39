//! The Kubernetes shell: decodes objects, watches them into the store, writes what the binder decides, emits
//! events, and has the in-tree plugins that ship.
//!
//! Read in this order:
//!
//! 1. [`decode`]: Kubernetes objects to core types.
//! 2. [`ApiClient`]: sends the requests of everything below, and limits the load on the API server.
//! 3. [`ApiPort`]: the binder's [`bindery_controller::Port`] over it.
//! 4. [`watch`]: lists and watches into the binder's [`bindery_controller::Intake`].
//! 5. [`Events`]: Kubernetes events.
//! 6. [`Leadership`]: competes for the Lease by an [`Elector`] while [`Eligibility`] allows it, and runs the
//!    binder while this replica leads.
//! 7. [`ForeignWriterCheck`]: tells replicas and the operator that another binder was seen.
//! 8. [`CertificateStore`]: the certificates of the webhook.
//! 9. [`PolicyObjects`]: policies and engines that are cluster objects.
//! 10. [`read`]: objects as JSON, for commands that explain.
//! 11. [`plugins`]: hostPath and NFS.
//!
//! # Guarantees
//!
//! - An object that cannot be parsed is `Unreadable`, never absent.
//! - Every update, patch and delete carries the UID and resourceVersion that the API server must find.
//! - An idle cluster costs no request but the watches.
//! - `Retry-After` holds back all requests but those for the Lease, which is renewed in time.

mod certificates;
mod client;
mod connect;
mod credentials;
pub mod decode;
mod eligibility;
pub mod encoding;
mod events;
mod foreign_writer;
mod keys;
mod leadership;
mod lease;
mod limit;
mod metrics;
pub mod plugins;
mod policy_objects;
mod port;
pub mod read;
mod request;
mod rest;
mod rights;
mod server_time;
pub mod watch;

pub use certificates::{Bundles, CertificateStorage, CertificateStore, Data};
pub use client::ApiClient;
pub use credentials::CredentialsError;
pub use eligibility::Eligibility;
pub use events::{COMPONENT, EventLoss, EventWorker, Events};
pub use foreign_writer::{ForeignWriterCheck, ForeignWriterMark};
pub use keys::FOREIGN_WRITER;
pub use leadership::{Leadership, Wait};
pub use lease::{Elector, LeaseError, LeaseSettings};
pub use policy_objects::{ConfigMapKey, PolicyObjects, PolicyWatches};
pub use port::{ApiPort, Clock, GUARD_HEADER, GUARD_LIVE_READ, system_clock};
pub use request::Template;
