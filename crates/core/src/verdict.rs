//! What policies say: matchers about a volume for a claim, reclaimers about a volume whose claim is gone.

use serde::{Deserialize, Serialize};

use crate::Text;

/// What the policies of a claim say about a volume that it could newly get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// All of them allow it.
    Allowed,
    /// A policy rejects it.
    Rejected {
        /// The policy.
        policy: Text,
        /// Why, as a sentence.
        reason: Text,
    },
}

/// What becomes of a volume whose claim is gone, by the reclaimers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// What its reclaim policy says: no reclaimer says anything else.
    #[default]
    ByPolicy,
    /// It stays as it is: its reclaim policy becomes `Retain`.
    Keep,
    /// It stays as it is for this number of milliseconds, and is deleted then.
    KeepFor(u64),
    /// It is deleted: its reclaim policy becomes `Delete`.
    Delete,
    /// It is scrubbed and offered again: its reclaim policy becomes `Recycle`.
    Recycle,
    /// It is offered again with its data.
    OfferAgain,
}

/// What the reclaimers say about a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimVerdict {
    /// What becomes of it.
    pub fate: Fate,
    /// The policy that says so; empty for [`Fate::ByPolicy`].
    pub policy: Text,
    /// Why, as a sentence.
    pub reason: Text,
}
