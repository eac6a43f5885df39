//! What an engine is asked to decide.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Claim, Key, Progress, Regarding, Text, Timestamp, Volume};

/// A request for a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The time, by the host's clock; an engine has no other.
    pub now: Timestamp,
    /// What is to be decided.
    pub subject: Subject,
}

impl Subject {
    /// The object that is decided.
    pub fn key(&self) -> Key {
        match self {
            Self::SyncClaim(claim) | Self::ReviewClaim { new: claim, .. } => Key::Claim(claim.key.clone()),
            Self::SyncVolume(volume) | Self::ReviewVolume { new: volume, .. } => {
                Key::Volume(volume.name.clone())
            }
            Self::SyncClaimOperation(progress) => Key::Claim(progress.object.key.clone()),
            Self::SyncVolumeOperation(progress) => Key::Volume(progress.object.name.clone()),
        }
    }

    /// The object that is decided, as events name it; `None` for reviews, whose objects need not exist.
    pub fn event_object(&self) -> Option<Regarding> {
        match self {
            Self::SyncClaim(claim) => Some(Regarding::Claim(claim.target())),
            Self::SyncVolume(volume) => Some(Regarding::Volume(volume.target())),
            Self::SyncClaimOperation(progress) => Some(Regarding::Claim(progress.object.target())),
            Self::SyncVolumeOperation(progress) => Some(Regarding::Volume(progress.object.target())),
            Self::ReviewClaim { .. } | Self::ReviewVolume { .. } => None,
        }
    }

    /// The namespace of the claim that is decided, or of the claim that a volume names; `None` for reviews,
    /// and for volumes without a claim.
    pub fn synced_namespace(&self) -> Option<Text> {
        let of_volume = |volume: &Volume| Some(volume.claim_ref.as_ref()?.namespace.clone());
        match self {
            Self::SyncClaim(claim) => Some(claim.key.namespace.clone()),
            Self::SyncClaimOperation(progress) => Some(progress.object.key.namespace.clone()),
            Self::SyncVolume(volume) => of_volume(volume),
            Self::SyncVolumeOperation(progress) => of_volume(&progress.object),
            Self::ReviewClaim { .. } | Self::ReviewVolume { .. } => None,
        }
    }
}

/// What is to be decided, with the object as the host knows it (overlay over watch cache).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Subject {
    /// What a claim needs (upstream's `syncClaim`).
    SyncClaim(Arc<Claim>),
    /// What a volume needs (upstream's `syncVolume`).
    SyncVolume(Arc<Volume>),
    /// The next step of an operation on a claim.
    SyncClaimOperation(Progress<Claim>),
    /// The next step of an operation on a volume.
    SyncVolumeOperation(Progress<Volume>),
    /// Whether a claim may be written as `new`.
    ReviewClaim {
        /// The claim as it would be.
        new: Arc<Claim>,
        /// The claim as it is; `None` on create.
        old: Option<Arc<Claim>>,
    },
    /// Whether a volume may be written as `new`.
    ReviewVolume {
        /// The volume as it would be.
        new: Arc<Volume>,
        /// The volume as it is; `None` on create.
        old: Option<Arc<Volume>>,
    },
}
