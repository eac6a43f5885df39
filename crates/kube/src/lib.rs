//! The Kubernetes shell: lean decoding, watches into the store, actions into API writes, events, and the
//! in-tree plugins that ship.
//!
//! Read in this order:
//!
//! 1. [`decode`]: Kubernetes objects to core types.
//! 2. [`ApiClient`]: by which all of the following ask an API server, and spare it.
//! 3. [`ApiPort`]: the binder's [`bindery_controller::Port`] over it.
//! 4. [`watch`]: lists and watches into the binder's [`bindery_controller::Intake`].
//! 5. [`Events`]: what users are told.
//! 6. [`Candidate`]: which of several replicas leads; [`missing_rights`]: whether one could.
//! 7. [`Alarm`]: where replicas and the operator tell each other that another binder was seen.
//! 8. [`CertificateStore`]: where certificates of the webhook are kept and made known.
//! 9. [`plugins`]: hostPath and NFS.
//!
//! # Guarantees
//!
//! - What cannot be parsed is `Unreadable`, never absent.
//! - Every update, patch and delete carries the UID and the resourceVersion that the API server must find.
//! - An idle cluster costs no request but the watches.
//! - A server that asks to be left alone for a while is, but for the Lease, which is renewed in time.

mod alarm;
mod certificates;
mod client;
mod connect;
mod credentials;
pub mod decode;
pub mod encoding;
mod events;
mod keys;
mod lease;
mod limit;
pub mod plugins;
mod port;
mod request;
mod rest;
mod rights;
mod traffic;
pub mod watch;

pub use alarm::{Alarm, AlarmError, Raised};
pub use certificates::{CertificateStore, CertificateStoreError, Read};
pub use client::ApiClient;
pub use credentials::CredentialsError;
pub use events::{COMPONENT, EventLoss, EventWorker, Events};
pub use keys::FOREIGN_WRITER;
pub use lease::{Candidate, LeaseError, LeaseSettings};
pub use limit::Pressure;
pub use port::{ApiPort, Clock, GUARD_HEADER, GUARD_LIVE_READ, system_clock};
pub use request::Template;
pub use rights::{Right, RightsError, missing_rights};
