//! Which changes of a volume are allowed.

use std::sync::Arc;

use bindery_controller::Write;
use bindery_core::{
    Action, FINALIZER_EXTERNAL, FINALIZER_IN_TREE, IN_TREE_PREFIX, ReclaimPolicy, Text, Volume, VolumePhase,
};

use super::{
    State, check_that, claim_ref_key, claim_states, claim_then, fate, is_surplus, may_meet, policed, uid_in,
};
use crate::world::MIGRATED;

/// A write to a volume that exists.
pub(super) struct Changed<'a> {
    pub(super) state: &'a State,
    pub(super) write: &'a Write<Volume>,
    pub(super) before: &'a Arc<Volume>,
    pub(super) after: &'a Volume,
}

impl Changed<'_> {
    pub(super) fn check(&self) -> Result<(), String> {
        let (before, after) = (self.before, self.after);
        if before.claim_ref != after.claim_ref {
            if uid_in(after).is_some() { self.reserved() } else { self.unbound() }?;
        }
        if matches!(self.write.action, Action::UnbindVolume { .. }) {
            policed::policy_restored(before, after)?;
        } else if before.policy != after.policy {
            policed::policy_set(self.state, before, after)?;
        }
        if before.phase != after.phase {
            self.phase()?;
        }
        for added in only_in(&after.finalizers, &before.finalizers) {
            self.may_protect(added)?;
        }
        for removed in only_in(&before.finalizers, &after.finalizers) {
            self.may_unprotect(removed)?;
        }
        self.migrated()
    }

    /// G2 and G3: claimRef gets the UID of a claim.
    fn reserved(&self) -> Result<(), String> {
        let Action::ReserveVolume { claim: target, .. } = &self.write.action else {
            return Err("G9: another write than a reservation sets claimRef".to_owned());
        };
        let claim = claim_then(self.state, target)?;
        check_that(uid_in(self.after) == Some(&claim.uid), "G2: reserves for another UID")?;
        check_that(
            uid_in(self.before).is_none_or(|uid| *uid == claim.uid),
            "G1: puts another UID over the one in claimRef",
        )?;
        check_that(
            may_meet(&self.state.extra.classes, claim, self.before),
            "G3: the claim may not have the volume",
        )?;
        check_that(
            self.before.claim_ref.is_some() || policed::may_get(self.state, claim, self.before),
            "G10: a policy rejects the volume for the claim",
        )
    }

    /// G4 and G9: claimRef loses its UID, so another claim may have the volume.
    fn unbound(&self) -> Result<(), String> {
        check_that(
            matches!(self.write.action, Action::UnbindVolume { .. }),
            "G9: another write than an unbinding clears claimRef",
        )?;
        let whole = self.after.claim_ref.is_none();
        check_that(
            whole == self.before.annotations.bound_by_controller,
            "G9: clears a user's reservation, or keeps the binder's",
        )?;
        let is_unused = fate(self.state, self.before)?.is_elsewhere && !is_surplus(self.before);
        check_that(
            is_unused
                || self.state.extra.assets.recycled.contains(&self.before.uid)
                || policed::may_be_offered(self.state, self.before),
            "G9: offers a volume that has data of its last claim",
        )
    }

    fn phase(&self) -> Result<(), String> {
        let was_released = matches!(self.before.phase, VolumePhase::Released | VolumePhase::Failed);
        match self.after.phase {
            VolumePhase::Available => {
                check_that(uid_in(self.before).is_none(), "G9: makes a claim's volume Available")
            }
            VolumePhase::Bound => self.is_bound(),
            VolumePhase::Released => {
                check_that(!was_released, "G9: releases a volume again")?;
                let is_gone = fate(self.state, self.before)?.is_gone;
                check_that(
                    is_gone || is_surplus(self.before),
                    "G9: releases a volume that is to be unbound",
                )?;
                policed::may_be_exposed(self.state, self.before, "releases")
            }
            VolumePhase::Failed => {
                check_that(was_released, "G9: fails a volume that was not released")?;
                let claim = claim_ref_key(self.before).and_then(|key| self.state.claims.get(&key));
                let needed = claim.is_some_and(|claim| {
                    uid_in(self.before) == Some(&claim.uid)
                        && claim.volume_name.as_ref() == Some(&self.before.name)
                });
                check_that(!needed || !self.state.extra.calm, "G1: fails a volume that its claim names")
            }
            VolumePhase::Pending | VolumePhase::Unset => Err("G9: resets a volume's phase".to_owned()),
        }
    }

    /// The claim with the UID in claimRef names the volume, or may have it.
    fn is_bound(&self) -> Result<(), String> {
        let uid = uid_in(self.before).ok_or("G3: Bound without a claim's UID")?;
        let mut claims = claim_states(self.state, uid);
        let belongs = claims.any(|claim| {
            claim.volume_name.as_ref() == Some(&self.before.name)
                || may_meet(&self.state.extra.classes, claim, self.before)
        });
        check_that(belongs, "G3: Bound to a claim that may not have it")
    }

    fn may_protect(&self, finalizer: &Text) -> Result<(), String> {
        let due = **finalizer == *FINALIZER_IN_TREE
            && self.before.policy == ReclaimPolicy::Delete
            && is_in_tree(self.before);
        check_that(due, "G9: adds a finalizer")
    }

    fn may_unprotect(&self, finalizer: &Text) -> Result<(), String> {
        let by = self.before.annotations.provisioned_by.as_deref();
        let may = match &**finalizer {
            FINALIZER_IN_TREE => {
                by == Some(MIGRATED.0)
                    || (is_in_tree(self.before) && self.before.policy != ReclaimPolicy::Delete)
                    || self.state.extra.assets.deleted.contains(&self.before.uid)
            }
            FINALIZER_EXTERNAL => is_in_tree(self.before),
            _ => false,
        };
        check_that(may, "G9: removes a finalizer that still protects")
    }

    fn migrated(&self) -> Result<(), String> {
        let (before, after) = (&self.before.annotations, &self.after.annotations);
        let driver = (before.provisioned_by.as_deref() == Some(MIGRATED.0)).then_some(MIGRATED.1);
        let is_due = before.provisioned_by.is_some() && after.migrated_to.as_deref() == driver;
        check_that(before.migrated_to == after.migrated_to || is_due, "G9: wrong migrated-to")
    }
}

/// A volume may be created if the plugin has provisioned it for this claim and its name has the claim's UID
/// (G5).
pub(super) fn created(state: &State, write: &Write<Volume>, volume: &Volume) -> Result<(), String> {
    let Action::CreateVolume { claim: target, name, .. } = &write.action else {
        return Err("G9: another write than a creation creates a volume".to_owned());
    };
    let claim = claim_then(state, target)?;
    check_that(**name == *format!("pvc-{}", claim.uid), "G5: the name is not that of the claim's volume")?;
    check_that(state.extra.assets.provisioned.contains(&claim.uid), "G9: creates a volume without an asset")?;
    check_that(uid_in(volume) == Some(&claim.uid), "G2: creates a volume for another UID")?;
    check_that(claim.volume_name.is_none(), "G9: provisions for a claim that has a volume")
}

/// A volume may be deleted once its asset is deleted and its claim does not need it (G4).
pub(super) fn deleted(state: &State, volume: &Volume) -> Result<(), String> {
    check_that(state.extra.assets.deleted.contains(&volume.uid), "G9: deletes a volume whose asset exists")?;
    if uid_in(volume).is_some() { policed::may_be_exposed(state, volume, "deletes") } else { Ok(()) }
}

fn is_in_tree(volume: &Volume) -> bool {
    let by = volume.annotations.provisioned_by.as_deref();
    by.is_some_and(|by| by.starts_with(IN_TREE_PREFIX) && by != MIGRATED.0)
}

fn only_in<'a>(these: &'a [Text], those: &[Text]) -> impl Iterator<Item = &'a Text> {
    these.iter().filter(|one| !those.contains(one))
}
