//! Harm that a write does to a volume.

use bindery_core::{
    FINALIZER_EXTERNAL, FINALIZER_IN_TREE, Fate, Migration, OperationKind, Point, RECLAIM_POLICY_BEFORE,
    ReclaimPolicy, Returned, Subject, Text, Uid, Volume, VolumeFact, VolumePhase,
};

use super::meet::{is_surplus, may_meet, uid_in};
use super::{Trial, check};
use crate::model::{Objects, Unreadable};

impl Trial<'_> {
    pub(super) fn volume_changed(&self, before: &Objects, old: &Volume, new: &Volume) -> Result<(), String> {
        self.readable_volume(new, old.claim_ref != new.claim_ref)?;
        let (was, is) = (uid_in(old), uid_in(new));
        match (was, is) {
            (Some(was), Some(is)) => check(was == is, "replaces the UID in claimRef")?,
            (Some(_), None) => self.unbound(old, new)?,
            (None, Some(uid)) => self.reserved(before, old, new, uid)?,
            (None, None) => check(old.claim_ref == new.claim_ref, "changes a reservation by name")?,
        }
        if old.phase != new.phase {
            self.phase_changed(before, old, new)?;
        }
        self.finalizers_changed(old, new)?;
        let by = old.annotations.provisioned_by.as_ref();
        check(new.annotations.provisioned_by.as_ref() == by, "changes provisioned-by")?;
        self.migration_changed(by, &old.annotations.migrated_to, &new.annotations.migrated_to)?;
        if old.policy != new.policy {
            self.policy_changed(old, new.policy)?;
        }
        let kept = |v: &Volume| (v.capacity, v.class.clone(), v.deleting, v.labels.clone());
        check(kept(old) == kept(new), "changes a field that the binder never writes")
    }

    fn reserved(&self, before: &Objects, old: &Volume, new: &Volume, uid: &Uid) -> Result<(), String> {
        let chosen = old.claim_ref.is_none();
        let marked = new.annotations.bound_by_controller && !old.annotations.bound_by_controller;
        check(chosen || !marked, "marks the user's choice as its own")?;
        check(!chosen || new.annotations.bound_by_controller, "does not mark its own choice")?;
        if !self.model.is_current() {
            return Ok(());
        }
        let claim = before.claims.values().find(|claim| claim.uid == *uid);
        let claim = claim.ok_or("reserves a volume for a claim that does not exist")?;
        check(may_meet(self.model, claim, old), "reserves a volume that the claim may not have")
    }

    fn unbound(&self, old: &Volume, new: &Volume) -> Result<(), String> {
        let whole = new.claim_ref.is_none();
        check(
            whole == old.annotations.bound_by_controller,
            "clears the user's reservation, or keeps its own",
        )?;
        if self.claim_is_elsewhere(old)? {
            return check(!is_surplus(old), "keeps a surplus volume instead of deleting it");
        }
        let recycled = self.progress().is_some_and(|(kind, uid, point, returned)| {
            (kind, point, returned) == (OperationKind::Recycle, Point::Recycled, &Returned::Success)
                && *uid == old.uid
        });
        let offered = self.model.offers_again && old.phase == VolumePhase::Released && !old.deleting;
        let reclaim = self.model.reclaim_of(&old.name);
        let wished = reclaim.fate == Fate::OfferAgain && reclaim.is_allowed && !old.deleting;
        check(recycled || offered || wished, "offers a volume that has data of its last claim")
    }

    /// Only what a reclaimer wants, and more harm than before only where the volume had that policy or the
    /// document allows it.
    fn policy_changed(&self, old: &Volume, new: ReclaimPolicy) -> Result<(), String> {
        let own = matches!(&self.request.subject, Subject::SyncVolume(volume) if volume.uid == old.uid);
        check(own, "sets the reclaim policy of another volume")?;
        let reclaim = self.model.reclaim_of(&old.name);
        let wanted = match reclaim.fate {
            Fate::Keep | Fate::KeepFor(_) => ReclaimPolicy::Retain,
            Fate::Delete => ReclaimPolicy::Delete,
            Fate::Recycle => ReclaimPolicy::Recycle,
            Fate::ByPolicy | Fate::OfferAgain => {
                return Err("sets a reclaim policy that no reclaimer wants".into());
            }
        };
        check(new == wanted, "sets another reclaim policy than the reclaimer wants")?;
        let noted = old.facts.get(&VolumeFact::Annotation(RECLAIM_POLICY_BEFORE.into()));
        let had = uid_in(old).zip(noted).is_some_and(|(uid, noted)| **noted == *format!("{new:?} {uid}"));
        check(
            new == ReclaimPolicy::Retain || had || reclaim.is_allowed,
            "destroys more than the reclaim policy did",
        )?;
        check(!self.claim_is_elsewhere(old)?, "sets the reclaim policy of a volume whose claim lives")
    }

    /// No reclaimer keeps the volume whose claim is gone, or its reclaim policy keeps it.
    pub(super) fn is_not_kept(&self, volume: &Volume) -> Result<(), String> {
        let fate = self.model.reclaim_of(&volume.name).fate;
        let harmless = matches!(volume.policy, ReclaimPolicy::Retain | ReclaimPolicy::Unknown);
        let offered = fate == Fate::OfferAgain && !volume.deleting;
        let kept = (matches!(fate, Fate::Keep | Fate::KeepFor(_)) || offered) && !harmless;
        check(!kept || self.claim_is_elsewhere(volume)?, "reclaims a volume that a reclaimer keeps")
    }

    fn phase_changed(&self, before: &Objects, old: &Volume, new: &Volume) -> Result<(), String> {
        match new.phase {
            VolumePhase::Available => check(uid_in(new).is_none(), "offers a volume that has a claim"),
            VolumePhase::Bound if self.model.is_current() => {
                let claim = before.claims.values().find(|claim| Some(&claim.uid) == uid_in(new));
                let claim = claim.ok_or("Bound without claim")?;
                let points = claim.volume_name.as_ref() == Some(&new.name);
                check(points || may_meet(self.model, claim, old), "Bound to a claim that may not have it")
            }
            VolumePhase::Bound => check(uid_in(new).is_some(), "Bound without a claim's UID"),
            VolumePhase::Released => {
                check(old.phase != VolumePhase::Failed, "Released although it was Failed")?;
                self.is_not_needed(old)?;
                self.is_not_kept(old)
            }
            VolumePhase::Failed => check(old.phase == VolumePhase::Released, "Failed before it was Released"),
            VolumePhase::Unset | VolumePhase::Pending => {
                Err("sets a phase that only the API server sets".into())
            }
        }
    }

    fn finalizers_changed(&self, old: &Volume, new: &Volume) -> Result<(), String> {
        let only_in = |one: &Volume, other: &Volume| {
            let surplus = one.finalizers.iter().filter(|f| !other.finalizers.contains(f));
            surplus.cloned().collect::<Vec<Text>>()
        };
        let by = old.annotations.provisioned_by.as_ref();
        let in_tree =
            by.is_some_and(|by| by.starts_with("kubernetes.io/") && !self.model.migrations.contains_key(by));
        let migrated = by.is_some_and(|by| self.model.migrations.contains_key(by));
        let deletes = old.policy == ReclaimPolicy::Delete;
        for added in only_in(new, old) {
            check(&*added == FINALIZER_IN_TREE && in_tree && deletes, "adds a finalizer")?;
        }
        for removed in only_in(old, new) {
            let may = match &*removed {
                FINALIZER_IN_TREE => migrated || (in_tree && !deletes) || self.asset_is_gone(old),
                FINALIZER_EXTERNAL => in_tree,
                _ => false,
            };
            check(may, "removes a finalizer that still protects")?;
        }
        Ok(())
    }

    pub(super) fn migration_changed(
        &self,
        source: Option<&Text>,
        old: &Option<Text>,
        new: &Option<Text>,
    ) -> Result<(), String> {
        if old == new {
            return Ok(());
        }
        let migration = source.map(|source| self.model.migrations.get(source).unwrap_or(&Migration::Off));
        let may = match (migration, new) {
            (Some(Migration::On(driver)), Some(new)) => driver == new,
            (Some(Migration::Off), None) => true,
            _ => false,
        };
        check(may, "sets a wrong migrated-to")
    }

    pub(super) fn volume_deleted(&self, old: &Volume) -> Result<(), String> {
        self.readable_volume(old, true)?;
        let removed = self.progress().is_some_and(|(kind, uid, point, returned)| {
            kind == OperationKind::Delete
                && *uid == old.uid
                && point == Point::FinalizerRemoved
                && *returned == Returned::Success
        });
        check(removed || self.asset_is_gone(old), "deletes a volume whose asset exists")?;
        if uid_in(old).is_some() { self.claim_is_elsewhere(old).map(|_| ()) } else { Ok(()) }
    }

    fn asset_is_gone(&self, volume: &Volume) -> bool {
        self.progress().is_some_and(|(kind, uid, point, returned)| {
            (kind, point, returned) == (OperationKind::Delete, Point::Deleted, &Returned::Success)
                && *uid == volume.uid
        })
    }

    fn readable_volume(&self, volume: &Volume, relation: bool) -> Result<(), String> {
        match &self.model.unreadable {
            Some(Unreadable::Volume(name)) => {
                check(*name != volume.name, "writes a volume that cannot be read")
            }
            Some(Unreadable::Claim(key)) if relation => {
                let names = volume.claim_ref.as_ref().is_some_and(|r| r.name == key.name);
                check(!names, "binds or frees a volume whose claim cannot be read")
            }
            _ => Ok(()),
        }
    }
}
