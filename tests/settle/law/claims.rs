//! Which changes of a claim are allowed.

use std::sync::Arc;

use bindery_controller::Write;
use bindery_core::{Action, Claim, ClaimPhase, Text, Volume, VolumePhase};

use super::policed::may_provision;
use super::{State, check_that, may_meet, states_now, uid_in, volume_states};
use crate::world::MIGRATED;

/// A write to a claim.
pub(super) struct Changed<'a> {
    pub(super) state: &'a State,
    pub(super) write: &'a Write<Volume>,
    pub(super) before: &'a Arc<Claim>,
    pub(super) after: &'a Claim,
}

impl Changed<'_> {
    pub(super) fn check(&self) -> Result<(), String> {
        let (before, after) = (self.before, self.after);
        let (had, has) = (before.annotations.bind_completed, after.annotations.bind_completed);
        check_that(has || !had, "G9: removes bind-completed")?;
        if before.volume_name != after.volume_name {
            check_that(before.volume_name.is_none(), "G1: changes a volumeName that is set")?;
        }
        if before.volume_name != after.volume_name || has != had {
            self.bound()?;
        }
        if before.status != after.status {
            self.status()?;
        }
        if before.class != after.class {
            self.class()?;
        }
        if before.annotations.storage_provisioner != after.annotations.storage_provisioner {
            self.provisioner()?;
        }
        let removes = before.annotations.selected_node.is_some() && after.annotations.selected_node.is_none();
        check_that(
            !removes || matches!(self.write.action, Action::RemoveSelectedNode { .. }),
            "G9: removes the node that the scheduler selected",
        )?;
        self.migrated()
    }

    /// The claim becomes bound: on the server, and not only in a cache, its volume carries its UID, is Bound,
    /// and may belong to it (G3).
    fn bound(&self) -> Result<(), String> {
        check_that(self.after.annotations.bind_completed, "G9: sets volumeName without bind-completed")?;
        let mut volumes = states_now(self.state, self.volume_name()?).flatten();
        let is_own = volumes.any(|volume| {
            self.is_held_by(volume) && may_meet(&self.state.extra.classes, self.before, volume)
        });
        check_that(is_own, "G3: binds a claim to a volume that is not Bound to it")
    }

    fn status(&self) -> Result<(), String> {
        let (before, after) = (&self.before.status, &self.after.status);
        let bind_completed = self.before.annotations.bind_completed;
        let is_bare =
            after.access_modes.is_empty() && !after.has_capacity && after.attributes_class.is_none();
        match after.phase {
            ClaimPhase::Unset => Err("G9: resets a claim's phase".to_owned()),
            ClaimPhase::Pending => check_that(!bind_completed && is_bare, "G9: Pending, but was bound"),
            ClaimPhase::Lost => {
                check_that(bind_completed && is_bare, "G9: Lost, but was never bound")?;
                self.has_lost()
            }
            ClaimPhase::Bound => {
                let capacity =
                    |volume: &Volume| before.phase == ClaimPhase::Bound || after.capacity == volume.capacity;
                // A later write can correct the status, so it may rest on a cache.
                let mut volumes = volume_states(self.state, self.volume_name()?);
                let is_own = volumes.any(|volume| {
                    self.is_held_by(volume) && after.access_modes == volume.access_modes && capacity(volume)
                });
                check_that(bind_completed && is_own, "G9: Bound to a volume that is not Bound to it")
            }
        }
    }

    /// The claim has no volumeName, or on the server its volume is gone or belongs to another claim.
    fn has_lost(&self) -> Result<(), String> {
        let Some(name) = &self.before.volume_name else { return Ok(()) };
        let is_others =
            |volume: &Arc<Volume>| volume.claim_ref.is_some() && uid_in(volume) != Some(&self.before.uid);
        let has_lost = states_now(self.state, name).any(|state| state.is_none_or(is_others));
        check_that(has_lost, "G9: Lost, but it has its volume")
    }

    /// KEP-3333: a default class, once, for a claim that has no volume.
    fn class(&self) -> Result<(), String> {
        let class = self.after.class.as_ref().and_then(|name| self.state.extra.classes.get(name));
        let may =
            self.before.class.is_none() && !self.is_settled() && class.is_some_and(|class| class.default);
        check_that(may, "G9: sets another class than a default one, or on a settled claim")?;
        may_provision(self.state, self.before)
    }

    fn provisioner(&self) -> Result<(), String> {
        let class = self.before.class.as_ref().and_then(|name| self.state.extra.classes.get(name));
        let due = class.map(|class| match &*class.provisioner {
            name if name == MIGRATED.0 => MIGRATED.1,
            name => name,
        });
        let is_due = self.after.annotations.storage_provisioner.as_deref() == due;
        check_that(
            is_due && !self.is_settled(),
            "G9: hands a claim to another provisioner than its class's",
        )?;
        may_provision(self.state, self.before)
    }

    fn migrated(&self) -> Result<(), String> {
        let (before, after) = (&self.before.annotations, &self.after.annotations);
        let by = after.storage_provisioner.as_deref().or(after.beta_storage_provisioner.as_deref());
        let driver = (by == Some(MIGRATED.0)).then_some(MIGRATED.1);
        let is_due = by.is_some() && after.migrated_to.as_deref() == driver;
        check_that(before.migrated_to == after.migrated_to || is_due, "G9: wrong migrated-to")
    }

    /// The volume that the claim points at after the write.
    fn volume_name(&self) -> Result<&Text, String> {
        Ok(self.after.volume_name.as_ref().ok_or("G9: bound without a volumeName")?)
    }

    fn is_held_by(&self, volume: &Volume) -> bool {
        uid_in(volume) == Some(&self.before.uid) && volume.phase == VolumePhase::Bound
    }

    fn is_settled(&self) -> bool {
        self.before.volume_name.is_some() || self.before.annotations.bind_completed
    }
}
