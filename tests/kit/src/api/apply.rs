//! The effect of a write that the API server accepts.

use std::sync::Arc;

use bindery_controller::{Write, WriteError};
use bindery_core::{
    Action, CapacityChange, Claim, ClaimRef, ClaimTarget, Clear, Edit, Quantity, Volume, VolumeTarget,
};

use super::Objects;

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
        | Action::UnbindVolume { volume, .. } => {
            let before = volume_at(objects, volume)?;
            let mut after = Volume::clone(&before);
            change_volume(&mut after, write);
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
            change_claim(&mut after, write);
            Ok(Change::Claim { before, after })
        }
        _ => Err(WriteError::Invalid(format!("{} is not allowed", write.name()))),
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

fn change_volume(after: &mut Volume, write: &Write<Volume>) {
    match &write.action {
        Action::ReserveVolume { claim, mark, .. } => {
            after.annotations.bound_by_controller |= mark;
            after.claim_ref = Some(ClaimRef {
                namespace: claim.key.namespace.clone(),
                name: claim.key.name.clone(),
                uid: Some(claim.uid.clone()),
            });
        }
        Action::SetVolumePhase { phase, .. } => after.phase = *phase,
        Action::AnnotateVolume { migrated_to, .. } => {
            edit(&mut after.annotations.migrated_to, migrated_to);
            after.finalizers = write.finalizers.clone().unwrap_or(std::mem::take(&mut after.finalizers));
        }
        Action::UnbindVolume { clear: Clear::Whole, .. } => {
            after.claim_ref = None;
            after.annotations.bound_by_controller = false;
        }
        Action::UnbindVolume { clear: Clear::Uid, .. } => {
            after.claim_ref.iter_mut().for_each(|claim_ref| claim_ref.uid = None);
        }
        _ => panic!("{} is not for a volume that exists", write.name()),
    }
}

fn change_claim(after: &mut Claim, write: &Write<Volume>) {
    match &write.action {
        Action::BindClaim { volume, set_volume_name, mark, .. } => {
            after.annotations.bind_completed = true;
            after.annotations.bound_by_controller |= mark;
            if *set_volume_name {
                after.volume_name = Some(volume.name.clone());
            }
        }
        Action::SetClaimStatus { phase, access_modes, capacity, attributes_class, .. } => {
            let status = &mut after.status;
            status.phase = *phase;
            match access_modes {
                Edit::Keep => {}
                Edit::Set(modes) => status.access_modes.clone_from(modes),
                Edit::Remove => status.access_modes.clear(),
            }
            if let Some(amount) = changed(*capacity) {
                (status.has_capacity, status.capacity) = (amount.is_some(), amount);
            }
            edit(&mut status.attributes_class, attributes_class);
        }
        Action::SetClaimClass { class, .. } => after.class = Some(class.clone()),
        Action::AnnotateClaim { provisioner, migrated_to, .. } => {
            let annotations = &mut after.annotations;
            if provisioner.is_some() {
                annotations.storage_provisioner.clone_from(provisioner);
                annotations.beta_storage_provisioner.clone_from(provisioner);
            }
            edit(&mut annotations.migrated_to, migrated_to);
        }
        Action::RemoveSelectedNode { .. } => after.annotations.selected_node = None,
        _ => panic!("{} is not for a claim", write.name()),
    }
}

fn edit<T: Clone>(value: &mut Option<T>, edit: &Edit<T>) {
    match edit {
        Edit::Keep => {}
        Edit::Set(new) => *value = Some(new.clone()),
        Edit::Remove => *value = None,
    }
}

/// The new capacity, if it changes.
fn changed(change: CapacityChange) -> Option<Option<Quantity>> {
    match change {
        CapacityChange::Keep => None,
        CapacityChange::Remove => Some(None),
        CapacityChange::Storage(amount) | CapacityChange::Whole(amount) => Some(Some(amount)),
    }
}
