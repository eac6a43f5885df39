//! What policies say: matchers about a volume for a claim, reclaimers about a volume whose claim is gone. And
//! what the guard says about a decision.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Key, Text, Uid, Version};

/// What the policies of a claim say about a volume that it could newly get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchVerdict {
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

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByPolicy => f.write_str("as its reclaim policy says"),
            Self::Keep => f.write_str("keep it"),
            Self::KeepFor(millis) => write!(f, "keep it for {} s", millis.div_ceil(1_000)),
            Self::Delete => f.write_str("delete it"),
            Self::Recycle => f.write_str("scrub it and offer it again"),
            Self::OfferAgain => f.write_str("offer it again with its data"),
        }
    }
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

/// What the guard says about a decision. Only one that has passed is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GuardVerdict {
    /// It may be carried out.
    Passed,
    /// It may not: why.
    Refused(String),
    /// A live read that the guard needs failed: why.
    Unproven(String),
    /// The cluster had changed meanwhile: how. The object is decided again.
    Stale(String),
}

/// A live read for the guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardRead {
    /// The object.
    pub key: Key,
    /// Its UID and version; `None` if it did not exist. The error says why it could not be read.
    pub found: Result<Option<(Uid, Version)>, String>,
}
