//! What may become of a claim.

use std::sync::Arc;

use bindery_controller::Write;
use bindery_core::{Action, Claim, ClaimPhase, Text, Volume, VolumePhase};

use super::{check_that, may_meet, uid_in, volume_states};
use crate::server::Inner;
use crate::world::MIGRATED;

/// A write to a claim.
pub(super) struct Changed<'a> {
    pub(super) server: &'a Inner,
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
        let took = before.annotations.selected_node.is_some() && after.annotations.selected_node.is_none();
        check_that(
            !took || matches!(self.write.action, Action::RemoveSelectedNode { .. }),
            "G9: takes the node that the scheduler has chosen",
        )?;
        self.migrated()
    }

    /// The claim became bound: its volume carries its UID and is Bound, and may be its own (G3), on the
    /// server and not only in a cache.
    fn bound(&self) -> Result<(), String> {
        check_that(self.after.annotations.bind_completed, "G9: sets volumeName without bind-completed")?;
        let mut volumes = self.server.states_now(self.volume_name()?).flatten();
        let is_own = volumes
            .any(|volume| self.is_held_by(volume) && may_meet(&self.server.classes, self.before, volume));
        check_that(is_own, "G3: binds a claim to a volume that is not Bound to it")
    }

    fn status(&self) -> Result<(), String> {
        let (before, after) = (&self.before.status, &self.after.status);
        let bind_completed = self.before.annotations.bind_completed;
        let is_bare =
            after.access_modes.is_empty() && !after.has_capacity && after.attributes_class.is_none();
        match after.phase {
            ClaimPhase::Unset => Err("G9: takes a claim's phase back".to_owned()),
            ClaimPhase::Pending => check_that(!bind_completed && is_bare, "G9: Pending, but was bound"),
            ClaimPhase::Lost => {
                check_that(bind_completed && is_bare, "G9: Lost, but was never bound")?;
                self.has_lost()
            }
            ClaimPhase::Bound => {
                let capacity =
                    |volume: &Volume| before.phase == ClaimPhase::Bound || after.capacity == volume.capacity;
                // The status can be put right, so it may rest on what a cache has.
                let mut volumes = volume_states(self.server, self.volume_name()?);
                let is_own = volumes.any(|volume| {
                    self.is_held_by(volume) && after.access_modes == volume.access_modes && capacity(volume)
                });
                check_that(bind_completed && is_own, "G9: Bound to a volume that is not Bound to it")
            }
        }
    }

    /// volumeName is empty, or on the server there is no such volume, or it is another's.
    fn has_lost(&self) -> Result<(), String> {
        let Some(name) = &self.before.volume_name else { return Ok(()) };
        let is_others =
            |volume: &Arc<Volume>| volume.claim_ref.is_some() && uid_in(volume) != Some(&self.before.uid);
        let has_lost = self.server.states_now(name).any(|state| state.is_none_or(is_others));
        check_that(has_lost, "G9: Lost, but its volume is its own")
    }

    /// KEP-3333: a default class, once, for a claim that has no volume.
    fn class(&self) -> Result<(), String> {
        let class = self.after.class.as_ref().and_then(|name| self.server.classes.get(name));
        let may =
            self.before.class.is_none() && !self.is_settled() && class.is_some_and(|class| class.default);
        check_that(may, "G9: gives a class that it may not give")
    }

    fn provisioner(&self) -> Result<(), String> {
        let class = self.before.class.as_ref().and_then(|name| self.server.classes.get(name));
        let due = class.map(|class| match &*class.provisioner {
            name if name == MIGRATED.0 => MIGRATED.1,
            name => name,
        });
        let is_due = self.after.annotations.storage_provisioner.as_deref() == due;
        check_that(is_due && !self.is_settled(), "G9: hands a claim to another provisioner than its class's")
    }

    fn migrated(&self) -> Result<(), String> {
        let (before, after) = (&self.before.annotations, &self.after.annotations);
        let by = after.storage_provisioner.as_deref().or(after.beta_storage_provisioner.as_deref());
        let driver = (by == Some(MIGRATED.0)).then_some(MIGRATED.1);
        let is_due = by.is_some() && after.migrated_to.as_deref() == driver;
        check_that(before.migrated_to == after.migrated_to || is_due, "G9: migrated-to says something untrue")
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
