//! Why a sync or an operation failed. Refusals, faults of the cluster, and conflicts, which are normal, are
//! kept apart.

use std::time::Duration;

use bindery_core::{EngineFault, Failure, Stop, Text};

use crate::WriteError;

/// Why a key is tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyncError {
    /// Nothing is decided before all initial lists are complete.
    #[error("the initial lists are not complete yet")]
    NotSynced,
    /// The engine did not decide; nothing was written.
    #[error("no decision: {0}")]
    Engine(EngineFault),
    /// A policy gives no answer, so the claim waits; nothing was written.
    #[error("it waits for policy {policy}: {why}")]
    Policy {
        /// The policy.
        policy: Text,
        /// Why it gives no answer.
        why: String,
    },
    /// The cluster changed during every attempt at the decision.
    #[error("decided {attempts} times on a world that changed meanwhile: {why}")]
    Stale {
        /// How often it was decided.
        attempts: u32,
        /// What had changed the last time.
        why: String,
    },
    /// A live read has contradicted the cache of volumes. Decisions for which the guard must read a volume
    /// wait until the new list of volumes is complete; then the key gets its turn.
    #[error("a new list of volumes is awaited, because a live read contradicts the cache")]
    AwaitsList,
    /// A live read that the guard needs failed; nothing was written.
    #[error("not proven: {0}")]
    Unproven(String),
    /// The guard refused the decision; nothing was written.
    #[error("the guard refused the decision: {0}")]
    Refused(String),
    /// The decision itself says that the sync failed.
    #[error("{0}")]
    Failed(Failure),
    /// Recycling and deleting are stopped; see [`crate::ForeignWriters`].
    #[error("recycling and deleting are stopped, because another binder has written; see docs/operate.md")]
    Held,
    /// No write can be made of an action; the steps after it were not carried out.
    #[error("a write cannot be prepared: {0}")]
    Unwritable(String),
    /// A write failed; the steps after it were not carried out. The object is quoted, so that the log counts
    /// the same failure of many objects as one cause.
    #[error("{write} {object:?}: {error}")]
    Write {
        /// Which write, as [`crate::Write::name`] says it.
        write: &'static str,
        /// The object.
        object: String,
        /// What happened.
        error: WriteError,
    },
}

/// Why an operation failed; it backs off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// A step could not be decided or carried out.
    #[error(transparent)]
    Step(#[from] SyncError),
    /// The decision calls a plugin that does not exist, or does not say how the operation continues.
    #[error("the engine's decision makes no sense here: {0}")]
    Nonsense(String),
    /// It took more steps than an operation can have.
    #[error("the operation did not end within {0} steps")]
    Endless(u32),
}

/// Why a review has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// Nothing is reviewed before all initial lists are complete.
    #[error("the initial lists are not complete yet")]
    NotSynced,
    /// The engine did not answer.
    #[error("no review: {0}")]
    Engine(#[from] EngineFault),
    /// The engine wants to wait, to continue or to be asked again, which a review does not do.
    #[error("no review: the engine's answer has more than findings")]
    Nonsense,
    /// The guard refused the engine's answer: it acts, is too large, or denies for a reason that is not true.
    #[error("the guard refused the review: {0}")]
    Refused(String),
    /// An object that the review depends on cannot be read, from the cluster or at all.
    #[error("{0}")]
    Failed(Failure),
}

impl From<EngineFault> for SyncError {
    fn from(fault: EngineFault) -> Self {
        match fault {
            EngineFault::Stopped(Stop::Waits { policy, why }) => Self::Policy { policy, why },
            fault => Self::Engine(fault),
        }
    }
}

impl SyncError {
    /// Shortest delay before the next attempt, if the API server asked for one.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Write { error, .. } => error.retry_after(),
            _ => None,
        }
    }

    /// Whether the API server refuses a write for another reason than a change of the object. It may take a
    /// write of another object.
    pub(crate) fn is_refused_write(&self) -> bool {
        matches!(self, Self::Write { error: WriteError::Invalid(_) | WriteError::Forbidden(_), .. })
    }

    /// Whether the error is a conflict with another writer, or a race within the binder. Both are expected
    /// and cheap.
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Write { error, .. } => error.is_conflict(),
            Self::Stale { .. } | Self::AwaitsList => true,
            _ => false,
        }
    }
}
