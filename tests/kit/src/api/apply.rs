//! The effect of a write that the API server accepts.

use std::sync::Arc;

use bindery_controller::{Target, Write, WriteError};
use bindery_core::steer::SteerWrite;
use bindery_core::{Action, Claim, ClaimTarget, Volume, VolumeFact, VolumeTarget};

use super::Objects;
use crate::{steer_claim, steer_volume, write_claim, write_volume};

/// What a write changes.
pub enum Change {
    /// A volume.
    Volume {
        /// The object before; `None` for a creation.
        before: Option<Arc<Volume>>,
        /// The object afterwards, except for its version.
        after: Volume,
    },
    /// A claim.
    Claim {
        /// As it was.
        before: Arc<Claim>,
        /// The object afterwards, except for its version.
        after: Claim,
    },
    /// A volume is marked for deletion.
    Deletion {
        /// As it was.
        before: Arc<Volume>,
    },
}

/// What a write changes.
///
/// # Errors
///
/// The object is gone, has changed, or would not be valid.
pub(super) fn change<X>(objects: &Objects<X>, write: &Write<Volume>) -> Result<Change, WriteError> {
    match &write.action {
        Action::CreateVolume { name, .. } if !objects.volumes.contains_key(name) => Ok(Change::Volume {
            before: None,
            after: write.template.clone().expect("a plugin has provisioned it"),
        }),
        Action::CreateVolume { name, .. } => Err(WriteError::AlreadyExists(name.to_string())),
        Action::DeleteVolume { volume } => Ok(Change::Deletion { before: volume_at(objects, volume)? }),
        Action::ReserveVolume { volume, .. }
        | Action::SetVolumePhase { volume, .. }
        | Action::AnnotateVolume { volume, .. }
        | Action::SetReclaimPolicy { volume, .. }
        | Action::UnbindVolume { volume, .. } => {
            let before = volume_at(objects, volume)?;
            let mut after = Volume::clone(&before);
            write_volume(&mut after, &write.action);
            for (key, value) in &write.annotations {
                after.facts.set(VolumeFact::Annotation((*key).into()), value.clone());
            }
            after.policy = write.reclaim_policy.unwrap_or(after.policy);
            // Of finalizers the request has all, as the binder has edited them.
            after.finalizers = write.finalizers.as_ref().unwrap_or(&before.finalizers).clone();
            let adds = after.finalizers.iter().any(|finalizer| !before.finalizers.contains(finalizer));
            if before.deleting && adds {
                return Err(WriteError::Invalid("no new finalizers can be added to a deleted object".into()));
            }
            Ok(Change::Volume { before: Some(before), after })
        }
        Action::BindClaim { claim, .. }
        | Action::SetClaimStatus { claim, .. }
        | Action::SetClaimClass { claim, .. }
        | Action::AnnotateClaim { claim, .. }
        | Action::RemoveSelectedNode { claim } => {
            let before = claim_at(objects, claim)?;
            let mut after = Claim::clone(&before);
            write_claim(&mut after, &write.action);
            Ok(Change::Claim { before, after })
        }
        _ => Err(WriteError::Invalid(format!("{} is not allowed", write.name()))),
    }
}

/// What a write of mode steer changes.
///
/// # Errors
///
/// The object is gone or has changed.
pub(super) fn steering<X>(objects: &Objects<X>, write: &SteerWrite) -> Result<Change, WriteError> {
    match Target::from(write) {
        Target::Claim(claim) => {
            let before = claim_at(objects, claim)?;
            let mut after = Claim::clone(&before);
            steer_claim(&mut after, write);
            Ok(Change::Claim { before, after })
        }
        Target::Volume(volume) => {
            let before = volume_at(objects, volume)?;
            let mut after = Volume::clone(&before);
            steer_volume(&mut after, write);
            Ok(Change::Volume { before: Some(before), after })
        }
        Target::NewVolume(_) | Target::None => Err(WriteError::Invalid("it writes no object".to_owned())),
    }
}

fn volume_at<X>(objects: &Objects<X>, target: &VolumeTarget) -> Result<Arc<Volume>, WriteError> {
    let Some(volume) = objects.volumes.get(&target.name) else {
        return Err(WriteError::NotFound(target.name.to_string()));
    };
    if (&volume.uid, &volume.version) != (&target.uid, &target.version) {
        return Err(WriteError::Conflict(target.name.to_string()));
    }
    Ok(Arc::clone(volume))
}

fn claim_at<X>(objects: &Objects<X>, target: &ClaimTarget) -> Result<Arc<Claim>, WriteError> {
    let Some(claim) = objects.claims.get(&target.key) else {
        return Err(WriteError::NotFound(target.key.to_string()));
    };
    if (&claim.uid, &claim.version) != (&target.uid, &target.version) {
        return Err(WriteError::Conflict(target.key.to_string()));
    }
    Ok(Arc::clone(claim))
}
