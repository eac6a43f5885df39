//! Harm that a write does to a claim.

use bindery_core::{
    Claim, ClaimPhase, Migration, OperationKind, Point, Returned, Subject, Text, VolumePhase,
};

use super::meet::{may_meet, uid_in};
use super::{Trial, check, complete};
use crate::model::Unreadable;

impl Trial<'_> {
    pub(super) fn claim_changed(&self, old: &Claim, new: &Claim) -> Result<(), String> {
        let unreadable = self.model.unreadable == Some(Unreadable::Claim(old.key.clone()));
        check(!unreadable, "writes a claim that cannot be read")?;
        if let Some(name) = &old.volume_name {
            check(new.volume_name.as_ref() == Some(name), "changes a volumeName")?;
            let unreadable = self.model.unreadable == Some(Unreadable::Volume(name.clone()));
            let judged =
                old.status != new.status || old.annotations.bind_completed != new.annotations.bind_completed;
            check(!unreadable || !judged, "changes a claim's status although its volume cannot be read")?;
        }
        let completes = new.annotations.bind_completed && !old.annotations.bind_completed;
        if new.volume_name != old.volume_name || completes {
            check(new.annotations.bind_completed, "points at a volume without bind-completed")?;
            let volume =
                complete(&self.objects, new).ok_or("binds a claim to a volume that is not its own")?;
            check(volume.phase == VolumePhase::Bound, "binds a claim before its volume is Bound")?;
            check(may_meet(self.model, old, volume), "binds a claim to a volume that it may not have")?;
            // The binder knows the volume by the answer to its own write, or else must read it.
            let is_known = self.returned.contains_key(&volume.uid) || !self.model.live_fails;
            check(is_known, "binds a claim although the live read of its volume failed")?;
        }
        check(old.annotations.bind_completed <= new.annotations.bind_completed, "removes bind-completed")?;
        let settled = old.annotations.bind_completed || old.volume_name.is_some();
        if old.class != new.class {
            let default = new.class.as_ref().and_then(|name| self.model.classes.get(name));
            let may = !settled && old.class.is_none() && default.is_some_and(|class| class.default);
            check(may, "sets a class that is not the default, or on a settled claim")?;
        }
        if old.status != new.status {
            self.status_changed(old, new)?;
        }
        let source = |claim: &Claim| {
            let a = &claim.annotations;
            a.storage_provisioner.clone().or(a.beta_storage_provisioner.clone())
        };
        self.migration_changed(
            source(new).as_ref(),
            &old.annotations.migrated_to,
            &new.annotations.migrated_to,
        )?;
        if source(old) != source(new) {
            let class = self.model.classes.get(new.class_or_empty());
            let told = source(new);
            let named = class.is_some_and(|class| {
                let migration = self.model.migrations.get(&class.provisioner);
                let is_driver = |told: &Text| migration == Some(&Migration::On(told.clone()));
                told.as_ref() == Some(&class.provisioner) || told.as_ref().is_some_and(is_driver)
            });
            let started = match &self.request.subject {
                Subject::SyncClaimOperation(progress) => told.as_ref() == Some(&progress.operation.plugin),
                _ => false,
            };
            check(!settled && (named || started), "hands the claim to the wrong provisioner")?;
        }
        if old.annotations.selected_node != new.annotations.selected_node {
            let failed = self.progress().is_some_and(|(kind, _, point, returned)| {
                kind == OperationKind::Provision
                    && point == Point::Provisioned
                    && !matches!(returned, Returned::Success | Returned::AlreadyExists)
            });
            check(failed, "removes the node that the scheduler has selected")?;
        }
        Ok(())
    }

    fn status_changed(&self, old: &Claim, new: &Claim) -> Result<(), String> {
        let status = &new.status;
        let empty =
            status.access_modes.is_empty() && !status.has_capacity && status.attributes_class.is_none();
        match status.phase {
            ClaimPhase::Unset => Err("unsets the phase of a claim".into()),
            ClaimPhase::Pending => {
                check(empty && !old.annotations.bind_completed, "Pending although it was bound")
            }
            ClaimPhase::Lost => {
                check(empty && old.annotations.bind_completed, "Lost although it was never bound")?;
                self.has_lost(old)
            }
            ClaimPhase::Bound if !self.model.is_current() => {
                check(old.annotations.bind_completed, "Bound without bind-completed")
            }
            ClaimPhase::Bound => {
                let volume = complete(&self.objects, new).ok_or("Bound without a complete pair")?;
                check(volume.phase == VolumePhase::Bound, "Bound before its volume")?;
                check(status.access_modes == volume.access_modes, "access modes are not the volume's")?;
                let first = old.status.phase == ClaimPhase::Pending;
                let class = if first { &volume.attributes_class } else { &old.status.attributes_class };
                check(status.attributes_class == *class, "attributes class is not the volume's")?;
                let capacity = if old.status.phase == ClaimPhase::Bound {
                    old.status.capacity
                } else {
                    volume.annotations.pre_resize_capacity.or(volume.capacity)
                };
                check(status.capacity == capacity, "capacity is not the volume's")
            }
        }
    }

    /// The live volume of the claim is gone or refers to another claim.
    fn has_lost(&self, claim: &Claim) -> Result<(), String> {
        let Some(name) = &claim.volume_name else { return Ok(()) };
        check(!self.model.live_fails, "Lost although the live read of its volume failed")?;
        let live = self.model.truth.volumes.get(name);
        let is_left = live.is_none_or(|v| v.claim_ref.is_some() && uid_in(v) != Some(&claim.uid));
        check(is_left, "Lost although its volume is free or its own")
    }
}
