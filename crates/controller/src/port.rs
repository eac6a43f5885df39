//! The port: the binder's only access to a cluster.
//!
//! The same binder runs on a real API server, on the simulator and on the in-memory port of tests, because it
//! needs only four things: a live read, one write, one event, the time.

use std::sync::Arc;
use std::time::Duration;

use bindery_core::steer::SteerWrite;
use bindery_core::{Claim, ClaimKey, Declared, Lookup, Text, Timestamp, Version, Volume};

use crate::{Note, Write};

/// Access to a cluster.
pub trait Port: Send + Sync + 'static {
    /// A volume that a plugin has provisioned and that does not exist yet: opaque to the binder, which keeps
    /// it between [`crate::Plugin::provision`] and [`bindery_core::Action::CreateVolume`].
    type Template: Clone + Send + Sync + 'static;

    /// Reads a volume from the API server, never from a cache.
    fn read_volume(&self, name: &Text, purpose: Purpose) -> impl Future<Output = Lookup<Arc<Volume>>> + Send;

    /// Reads a claim from the API server, never from a cache.
    fn read_claim(&self, key: &ClaimKey, purpose: Purpose)
    -> impl Future<Output = Lookup<Arc<Claim>>> + Send;

    /// Makes one write, as one request.
    ///
    /// # Errors
    ///
    /// The API server refused it, or it is unknown whether it was made; see [`WriteError`].
    fn write(
        &self,
        write: &Write<Self::Template>,
    ) -> impl Future<Output = Result<Written, WriteError>> + Send;

    /// Decodes the facts that policies declare from now on. A port that hands out whole objects need not.
    fn declare(&self, _declared: Arc<Declared>) {}

    /// Reads a volume that mode steer is about to reserve or to release, and whether its managedFields say
    /// that Bindery alone has written the name in its claimRef.
    fn read_reservation(&self, _name: &Text) -> impl Future<Output = Lookup<(Arc<Volume>, bool)>> + Send {
        async { Lookup::Failed("this port serves no binder in mode steer".into()) }
    }

    /// Makes one write of mode steer, as one request.
    fn steer(&self, _write: &SteerWrite) -> impl Future<Output = Result<Written, WriteError>> + Send {
        async { Err(WriteError::Failed("this port serves no binder in mode steer".to_owned())) }
    }

    /// Records an event, without waiting. A lost event never fails a decision.
    fn emit(&self, note: &Note);

    /// The time. Engines get no other clock; delays are measured by [`tokio::time`], so that tests can pause
    /// the clock.
    fn now(&self) -> Timestamp;
}

/// The purpose of a live read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The engine asked, to decide or to review.
    Engine,
    /// The guard needs proof: of a claim before its volume is released, recycled or deleted, or of a volume
    /// before its claim is written Lost or bound, or gets another volume after a reservation without an
    /// answer or with a conflict; in mode steer of both before a reservation or a release.
    Guard,
}

/// The result of a write on the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// This volume.
    Volume(Arc<Volume>),
    /// This claim.
    Claim(Arc<Claim>),
    /// A deletion was accepted; the watch reports when the object is gone.
    Deletion,
}

impl Written {
    /// The version of the object as the write left it.
    pub(crate) fn version(&self) -> Option<&Version> {
        match self {
            Self::Volume(volume) => Some(&volume.version),
            Self::Claim(claim) => Some(&claim.version),
            Self::Deletion => None,
        }
    }
}

/// Why a write was not made, or may not have been made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object changed since it was read (409 Conflict): decide again from its current state.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The object does not exist any more (404).
    #[error("not found: {0}")]
    NotFound(String),
    /// An object of that name exists (409 AlreadyExists).
    #[error("already exists: {0}")]
    AlreadyExists(String),
    /// The API server does not accept the object (422, 400, 413 and others that do not pass by themselves):
    /// retried, because another actor may correct it.
    #[error("invalid: {0}")]
    Invalid(String),
    /// Bindery lacks the right, or a policy denies the write (403). The operator has to allow it.
    #[error("forbidden: {0}; {remedy}", remedy = remedy_of(.0))]
    Forbidden(String),
    /// The API server does not know the user of the write (401).
    #[error("the API server does not accept the credentials (401): {0}")]
    Unauthorized(String),
    /// The API server is busy (429, or 503 with Retry-After): retried, not before this delay has passed.
    #[error("throttled: {message}")]
    Throttled {
        /// What it said.
        message: String,
        /// How long to wait at least.
        retry_after: Duration,
    },
    /// It was made, but the answer cannot be read; the watch will deliver the object.
    #[error("written, but the answer cannot be read: {0}")]
    Unreadable(String),
    /// The API server failed (5xx). The write may have been made all the same.
    #[error("the API server failed with status {status}: {message}")]
    Broken {
        /// HTTP status.
        status: u16,
        /// What it said.
        message: String,
    },
    /// Anything else: no answer, or an unknown one. The write may have been made all the same.
    #[error("{0}")]
    Failed(String),
}

/// Whether an admission webhook or policy refused the write: both say that they deny the request.
fn is_denial(message: &str) -> bool {
    message.contains("denied the request") || message.contains("denied request")
}

/// What helps against a refusal with 403.
fn remedy_of(message: &str) -> &'static str {
    if is_denial(message) {
        "exempt the service account in the policy that denies it"
    } else {
        "check the RBAC rules of the service account"
    }
}

impl WriteError {
    /// The API server's or the connection's own message, which upstream puts into the status of volumes.
    pub fn message(&self) -> &str {
        match self {
            Self::Conflict(message)
            | Self::NotFound(message)
            | Self::AlreadyExists(message)
            | Self::Invalid(message)
            | Self::Forbidden(message)
            | Self::Unauthorized(message)
            | Self::Throttled { message, .. }
            | Self::Broken { message, .. }
            | Self::Unreadable(message)
            | Self::Failed(message) => message,
        }
    }

    /// Whether the write of another replica might succeed, which may reach another API server by another way.
    ///
    /// Every replica gets the same refusal by RBAC, by validation and by admission. This includes a webhook
    /// that cannot be called: often it is down, and only seldom a single API server does not reach it. All
    /// replicas have the same account, so a server that throttles one of them throttles the others too.
    pub(crate) fn may_pass_elsewhere(&self) -> bool {
        match self {
            Self::Broken { message, .. } | Self::Failed(message) => {
                // What the API server calls internal comes from admission too, such as the patch of a webhook
                // that does not apply. Errors of etcd come as they are.
                let alike = ["failed calling webhook", "admission plugin", "Internal error occurred"];
                !is_denial(message) && !alike.iter().any(|part| message.contains(part))
            }
            _ => false,
        }
    }

    /// Shortest delay before the next attempt, if the API server asked for one.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }

    /// Whether another writer changed the object meanwhile, which is expected and cheap.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict(_))
    }
}
