//! The effects of the earlier steps of a decision, on which a later step may rely.

use crate::{
    Action, CapacityChange, Claim, ClaimRef, Clear, Edit, FINALIZER_EXTERNAL, FINALIZER_IN_TREE,
    FinalizerEdit, RECLAIM_POLICY_BEFORE, Text, Uid, Volume, VolumeFact,
};

/// The objects as the earlier steps left them. Their versions stay those that the engine read and names; the
/// host sends the versions that its writes returned.
#[derive(Clone, Default)]
pub(super) struct Effects {
    pub(super) claims: Vec<Claim>,
    pub(super) volumes: Vec<Volume>,
    pub(super) deleted: Vec<Uid>,
}

impl Effects {
    /// The claim of that UID, where an earlier step wrote it.
    pub(super) fn claim(&self, uid: &Uid) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.uid == *uid)
    }

    /// The volume of that UID, where an earlier step wrote it.
    pub(super) fn volume(&self, uid: &Uid) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.uid == *uid)
    }

    /// The volume of that name, where an earlier step wrote it.
    pub(super) fn volume_named(&self, name: &str) -> Option<&Volume> {
        self.volumes.iter().find(|volume| *volume.name == *name)
    }

    /// Applies a write to a claim.
    pub(super) fn write_claim(&mut self, before: &Claim, action: &Action) {
        if self.claim(&before.uid).is_none() {
            self.claims.push(before.clone());
        }
        if let Some(claim) = self.claims.iter_mut().find(|claim| claim.uid == before.uid) {
            apply_to_claim(claim, action);
        }
    }

    /// Applies a write to a volume.
    pub(super) fn write_volume(&mut self, before: &Volume, action: &Action) {
        if self.volume(&before.uid).is_none() {
            self.volumes.push(before.clone());
        }
        if let Some(volume) = self.volumes.iter_mut().find(|volume| volume.uid == before.uid) {
            apply_to_volume(volume, action);
        }
        if matches!(action, Action::DeleteVolume { .. }) {
            self.deleted.push(before.uid.clone());
        }
    }
}

fn apply_to_claim(claim: &mut Claim, action: &Action) {
    match action {
        Action::BindClaim { volume, set_volume_name, mark, .. } => {
            if *set_volume_name {
                claim.volume_name = Some(volume.name.clone());
            }
            claim.annotations.bound_by_controller |= mark;
            claim.annotations.bind_completed = true;
        }
        Action::SetClaimStatus { phase, access_modes, capacity, attributes_class, .. } => {
            let status = &mut claim.status;
            status.phase = *phase;
            match access_modes {
                Edit::Keep => {}
                Edit::Set(modes) => status.access_modes.clone_from(modes),
                Edit::Remove => status.access_modes.clear(),
            }
            match capacity {
                CapacityChange::Keep => {}
                CapacityChange::Remove => (status.has_capacity, status.capacity) = (false, None),
                CapacityChange::Storage(amount) | CapacityChange::Whole(amount) => {
                    (status.has_capacity, status.capacity) = (true, Some(*amount));
                }
            }
            edit(&mut status.attributes_class, attributes_class);
        }
        Action::SetClaimClass { class, .. } => claim.class = Some(class.clone()),
        Action::AnnotateClaim { provisioner, migrated_to, .. } => {
            if provisioner.is_some() {
                claim.annotations.storage_provisioner.clone_from(provisioner);
                claim.annotations.beta_storage_provisioner.clone_from(provisioner);
            }
            edit(&mut claim.annotations.migrated_to, migrated_to);
        }
        Action::RemoveSelectedNode { .. } => claim.annotations.selected_node = None,
        _ => {}
    }
}

fn apply_to_volume(volume: &mut Volume, action: &Action) {
    match action {
        Action::ReserveVolume { claim, mark, .. } => {
            volume.claim_ref = Some(ClaimRef {
                namespace: claim.key.namespace.clone(),
                name: claim.key.name.clone(),
                uid: Some(claim.uid.clone()),
            });
            volume.annotations.bound_by_controller |= mark;
        }
        Action::SetVolumePhase { phase, .. } => volume.phase = *phase,
        Action::AnnotateVolume { migrated_to, in_tree_finalizer, external_finalizer, .. } => {
            edit(&mut volume.annotations.migrated_to, migrated_to);
            edit_finalizer(volume, FINALIZER_IN_TREE, *in_tree_finalizer);
            edit_finalizer(volume, FINALIZER_EXTERNAL, *external_finalizer);
        }
        Action::SetReclaimPolicy { policy, .. } => {
            let noted = volume.noted_with(*policy);
            volume.facts.set(VolumeFact::Annotation(RECLAIM_POLICY_BEFORE.into()), noted);
            volume.policy = *policy;
        }
        Action::UnbindVolume { clear: Clear::Whole, .. } => {
            volume.claim_ref = None;
            volume.annotations.bound_by_controller = false;
        }
        Action::UnbindVolume { clear: Clear::Uid, .. } => {
            if let Some(claim_ref) = &mut volume.claim_ref {
                claim_ref.uid = None;
            }
        }
        _ => {}
    }
}

fn edit(field: &mut Option<Text>, edit: &Edit<Text>) {
    match edit {
        Edit::Keep => {}
        Edit::Set(value) => *field = Some(value.clone()),
        Edit::Remove => *field = None,
    }
}

fn edit_finalizer(volume: &mut Volume, finalizer: &str, edit: FinalizerEdit) {
    match edit {
        FinalizerEdit::Keep => {}
        FinalizerEdit::Add => volume.finalizers.push(finalizer.into()),
        FinalizerEdit::Remove => volume.finalizers.retain(|f| **f != *finalizer),
    }
}
