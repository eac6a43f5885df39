//! The object that an action writes.

use bindery_core::{Action, ClaimTarget, Text, Uid, Version};

pub(super) fn volume_of(action: &Action) -> Option<(&Uid, &Version, &Text)> {
    match action {
        Action::ReserveVolume { volume, .. }
        | Action::SetVolumePhase { volume, .. }
        | Action::AnnotateVolume { volume, .. }
        | Action::SetReclaimPolicy { volume, .. }
        | Action::UnbindVolume { volume, .. }
        | Action::DeleteVolume { volume } => Some((&volume.uid, &volume.version, &volume.name)),
        _ => None,
    }
}

pub(super) fn claim_of(action: &Action) -> Option<&ClaimTarget> {
    match action {
        Action::BindClaim { claim, .. }
        | Action::SetClaimStatus { claim, .. }
        | Action::SetClaimClass { claim, .. }
        | Action::AnnotateClaim { claim, .. }
        | Action::RemoveSelectedNode { claim } => Some(claim),
        _ => None,
    }
}
