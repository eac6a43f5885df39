//! The effect of a write on an object that the API server accepts.

use bindery_core::steer::{SteerWrite, fence, steering_key};
use bindery_core::{
    Action, CapacityChange, Claim, ClaimKey, ClaimRef, Clear, Edit, FINALIZER_EXTERNAL, FINALIZER_IN_TREE,
    FinalizerEdit, Text, Volume,
};

/// Writes a volume; any action that is not a write of a volume changes nothing.
pub fn write_volume(volume: &mut Volume, action: &Action) {
    match action {
        Action::ReserveVolume { claim, mark, .. } => {
            let (namespace, name) = (claim.key.namespace.clone(), claim.key.name.clone());
            let uid = Some(claim.uid.clone());
            volume.claim_ref = Some(ClaimRef { namespace, name, uid });
            volume.annotations.bound_by_controller |= *mark;
        }
        Action::SetVolumePhase { phase, .. } => volume.phase = *phase,
        Action::AnnotateVolume { migrated_to, in_tree_finalizer, external_finalizer, .. } => {
            let edits = [(FINALIZER_IN_TREE, in_tree_finalizer), (FINALIZER_EXTERNAL, external_finalizer)];
            for (name, edit) in edits {
                match edit {
                    FinalizerEdit::Keep => {}
                    FinalizerEdit::Add => volume.finalizers.push(name.into()),
                    FinalizerEdit::Remove => volume.finalizers.retain(|f| **f != *name),
                }
            }
            set(&mut volume.annotations.migrated_to, migrated_to);
        }
        Action::SetReclaimPolicy { policy, .. } => volume.policy = *policy,
        Action::UnbindVolume { clear, .. } => match clear {
            Clear::Whole => {
                volume.claim_ref = None;
                volume.annotations.bound_by_controller = false;
            }
            Clear::Uid => {
                if let Some(claim_ref) = volume.claim_ref.as_mut() {
                    claim_ref.uid = None;
                }
            }
        },
        _ => {}
    }
}

/// Writes a claim; any action that is not a write of a claim changes nothing.
pub fn write_claim(claim: &mut Claim, action: &Action) {
    match action {
        Action::BindClaim { volume, set_volume_name, mark, .. } => {
            if *set_volume_name {
                claim.volume_name = Some(volume.name.clone());
            }
            claim.annotations.bind_completed = true;
            claim.annotations.bound_by_controller |= *mark;
        }
        Action::SetClaimStatus { phase, access_modes, capacity, attributes_class, .. } => {
            claim.status.phase = *phase;
            if let Edit::Set(modes) = access_modes {
                claim.status.access_modes.clone_from(modes);
            } else if *access_modes == Edit::Remove {
                claim.status.access_modes = vec![];
            }
            let amount = match capacity {
                CapacityChange::Keep => claim.status.capacity,
                CapacityChange::Remove => None,
                CapacityChange::Storage(amount) | CapacityChange::Whole(amount) => Some(*amount),
            };
            if *capacity != CapacityChange::Keep {
                (claim.status.capacity, claim.status.has_capacity) = (amount, amount.is_some());
            }
            set(&mut claim.status.attributes_class, attributes_class);
        }
        Action::SetClaimClass { class, .. } => claim.class = Some(class.clone()),
        Action::AnnotateClaim { provisioner, migrated_to, .. } => {
            if let Some(provisioner) = provisioner {
                claim.annotations.storage_provisioner = Some(provisioner.clone());
                claim.annotations.beta_storage_provisioner = Some(provisioner.clone());
            }
            set(&mut claim.annotations.migrated_to, migrated_to);
        }
        Action::RemoveSelectedNode { .. } => claim.annotations.selected_node = None,
        _ => {}
    }
}

/// The label that steers a claim.
fn label(claim: &ClaimKey) -> Option<Text> {
    steering_key(claim).map(Text::from)
}

/// Writes the volume of a write of mode steer; a write of a claim changes nothing.
pub fn steer_volume(volume: &mut Volume, write: &SteerWrite) {
    match write {
        SteerWrite::Fence { claim, .. } => volume.annotations.fence = Some(fence(claim)),
        SteerWrite::Reserve { reservation, .. } => {
            let ClaimKey { namespace, name } = reservation.claim.clone();
            volume.claim_ref = Some(ClaimRef { namespace, name, uid: None });
            volume.annotations.reserved_for = Some(Box::new(reservation.clone()));
        }
        SteerWrite::Release { .. } => {
            volume.claim_ref = None;
            volume.annotations.reserved_for = None;
        }
        SteerWrite::Forget { .. } => volume.annotations.reserved_for = None,
        SteerWrite::Label { reservation, .. } => {
            volume.labels.extend(label(&reservation.claim).map(|label| (label, reservation.uid.0.clone())));
        }
        SteerWrite::Unlabel { claim, .. } => {
            volume.labels.retain(|key, _| Some(key) != label(claim).as_ref())
        }
        SteerWrite::Choose { .. } | SteerWrite::Touch { .. } => {}
    }
}

/// Writes the claim of a write of mode steer; a write of a volume changes nothing. The annotation of a touch
/// is none that decisions read.
pub fn steer_claim(claim: &mut Claim, write: &SteerWrite) {
    if let SteerWrite::Choose { choice, .. } = write {
        claim.choice = Some(Box::new(choice.clone()));
    }
}

fn set(field: &mut Option<Text>, edit: &Edit<Text>) {
    match edit {
        Edit::Keep => {}
        Edit::Set(value) => *field = Some(value.clone()),
        Edit::Remove => *field = None,
    }
}
