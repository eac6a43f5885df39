//! G9 for volumes: phases, annotations, finalizers, unbinding, deletion.

use super::proof::{FormerClaim, is_surplus};
use super::step::StepCheck;
use super::{Breach, Objection};
use crate::{
    Claim, Clear, Edit, FINALIZER_EXTERNAL, FINALIZER_IN_TREE, Fate, FinalizerEdit, IN_TREE_PREFIX, Message,
    Migration, OperationKind, Point, ReclaimPolicy, Text, Volume, VolumePhase, VolumeTarget,
};

impl StepCheck<'_> {
    /// `status.phase` of a volume.
    pub(super) fn volume_phase(
        &self,
        target: &VolumeTarget,
        phase: VolumePhase,
        message: &Message,
    ) -> Result<(), Objection> {
        let volume = self.volume(target)?;
        if (*message == Message::Empty) == (phase == VolumePhase::Failed) {
            let sentence =
                format!("status.phase {:?} does not go with status.message {message:?}", phase.name());
            return self.refuse_volume(Breach::VolumePhaseWrong, &volume, sentence);
        }
        match phase {
            VolumePhase::Available => self.available(&volume),
            VolumePhase::Bound => self.bound(&volume),
            VolumePhase::Released => self.released(&volume),
            VolumePhase::Failed => self.failed(&volume),
            VolumePhase::Unset | VolumePhase::Pending => {
                let sentence = format!("status.phase would become {:?}", phase.name());
                self.refuse_volume(Breach::VolumePhaseWrong, &volume, sentence)
            }
        }
    }

    /// Available: claimRef carries no UID, so the volume is not half of a pair.
    fn available(&self, volume: &Volume) -> Result<(), Objection> {
        match volume.claim_ref.as_ref().and_then(|claim_ref| claim_ref.uid.as_ref()) {
            None => Ok(()),
            Some(uid) => {
                let sentence = format!("spec.claimRef has UID {uid}, so it cannot become Available");
                self.refuse_volume(Breach::VolumePhaseWrong, volume, sentence)
            }
        }
    }

    /// Bound: the claim whose UID is in claimRef points back, or may be bound.
    fn bound(&self, volume: &Volume) -> Result<(), Objection> {
        self.readable_claim_of(volume)?;
        let Some(claim) = self.claim_of(volume) else {
            let sentence = "no claim with the UID in spec.claimRef is known, so it cannot become Bound";
            return self.refuse_volume(Breach::VolumePhaseWrong, volume, sentence);
        };
        let points = |claim: &Claim| claim.volume_name.as_ref() == Some(&volume.name);
        if !points(&claim) {
            self.legal(&claim, volume)?;
        }
        self.still_claim(&claim, "it may not have the volume any more", |now| {
            points(now) || self.legal(now, volume).is_ok()
        })
    }

    /// Released: a live read shows that the claim whose UID is in claimRef has left the volume.
    fn released(&self, volume: &Volume) -> Result<(), Objection> {
        if is_released(volume) {
            let sentence = format!("status.phase is {:?} and stays so", volume.phase.name());
            return self.refuse_volume(Breach::VolumePhaseWrong, volume, sentence);
        }
        self.releasable(volume)
    }

    /// Failed: reclaiming a released volume failed.
    fn failed(&self, volume: &Volume) -> Result<(), Objection> {
        if !is_released(volume) {
            let sentence =
                format!("status.phase is {:?}; only a released volume becomes Failed", volume.phase.name());
            return self.refuse_volume(Breach::VolumePhaseWrong, volume, sentence);
        }
        self.readable_claim_of(volume)?;
        if let Some(claim) = self.claim_of(volume).filter(|c| c.volume_name.as_ref() == Some(&volume.name)) {
            let sentence = format!("it and claim {} point at each other", claim.key);
            return self.refuse_volume(Breach::PairBroken, volume, sentence);
        }
        let reclaims = match self.case.running() {
            None => volume.policy == ReclaimPolicy::Unknown && !is_migrated(volume),
            Some(running) => {
                matches!(running.kind, OperationKind::Delete | OperationKind::Recycle)
                    && *running.uid == volume.uid
            }
        };
        if !reclaims {
            let sentence = "only its own reclaim operation or an unknown policy makes it Failed";
            return self.refuse_volume(Breach::VolumePhaseWrong, volume, sentence);
        }
        Ok(())
    }

    /// migrated-to and the deletion finalizers.
    pub(super) fn annotate_volume(
        &self,
        target: &VolumeTarget,
        migrated_to: &Edit<Text>,
        in_tree: FinalizerEdit,
        external: FinalizerEdit,
    ) -> Result<(), Objection> {
        let volume = self.volume(target)?;
        let by = volume.annotations.provisioned_by.as_deref();
        if !self.may_migrate(by, volume.annotations.migrated_to.as_deref(), migrated_to) {
            let sentence = format!("migrated-to cannot become {migrated_to:?} with provisioned-by {by:?}");
            return self.refuse_volume(Breach::AnnotationWrong, &volume, sentence);
        }
        let may = match in_tree {
            FinalizerEdit::Keep => true,
            FinalizerEdit::Add => self.may_add_in_tree(&volume),
            FinalizerEdit::Remove => self.may_remove_in_tree(&volume),
        };
        if !may {
            let sentence = format!(
                "finalizer {FINALIZER_IN_TREE}: {in_tree:?} does not fit \
                 provisioned-by {by:?} and policy {:?}",
                volume.policy
            );
            return self.refuse_volume(Breach::FinalizerWrong, &volume, sentence);
        }
        let may = match external {
            FinalizerEdit::Keep => true,
            FinalizerEdit::Add => false,
            FinalizerEdit::Remove => has(&volume, FINALIZER_EXTERNAL) && self.is_in_tree(&volume),
        };
        if !may {
            let sentence =
                format!("finalizer {FINALIZER_EXTERNAL}: {external:?} does not fit provisioned-by {by:?}");
            return self.refuse_volume(Breach::FinalizerWrong, &volume, sentence);
        }
        Ok(())
    }

    /// Whether migrated-to of an object of that provisioner may change so, by the migration that the engine
    /// was told.
    pub(super) fn may_migrate(
        &self,
        provisioner: Option<&str>,
        current: Option<&str>,
        edit: &Edit<Text>,
    ) -> bool {
        let migration = provisioner.and_then(|provisioner| self.case.migration(provisioner));
        match (edit, migration) {
            (Edit::Keep, _) => true,
            (Edit::Set(driver), Some(Migration::On(told))) => driver == told,
            (Edit::Remove, Some(Migration::Off)) => current.is_some(),
            (Edit::Set(_) | Edit::Remove, _) => false,
        }
    }

    /// Whether an in-tree plugin that has not migrated provisioned the volume.
    fn is_in_tree(&self, volume: &Volume) -> bool {
        volume.annotations.provisioned_by.as_deref().is_some_and(|by| {
            by.starts_with(IN_TREE_PREFIX) && matches!(self.case.migration(by), Some(Migration::Off))
        })
    }

    /// Also true for a volume that is being deleted: the API server refuses that write, as it does
    /// upstream's.
    fn may_add_in_tree(&self, volume: &Volume) -> bool {
        volume.policy == ReclaimPolicy::Delete && !has(volume, FINALIZER_IN_TREE) && self.is_in_tree(volume)
    }

    fn may_remove_in_tree(&self, volume: &Volume) -> bool {
        let has_migrated = || {
            let by = volume.annotations.provisioned_by.as_deref();
            let migration = by.and_then(|by| self.case.migration(by));
            matches!(migration, Some(Migration::On(_) | Migration::Untranslatable))
        };
        let is_kept = || volume.policy != ReclaimPolicy::Delete && self.is_in_tree(volume);
        has(volume, FINALIZER_IN_TREE) && (has_migrated() || is_kept() || self.asset_is_gone(volume))
    }

    /// Whether this volume's own delete operation has just deleted its asset.
    fn asset_is_gone(&self, volume: &Volume) -> bool {
        self.has_reached(OperationKind::Delete, volume, &[Point::Deleted])
    }

    /// Whether the volume's own operation of that kind has successfully reached one of these points.
    fn has_reached(&self, kind: OperationKind, volume: &Volume, points: &[Point]) -> bool {
        self.case.running().is_some_and(|running| {
            let is_own = running.kind == kind && *running.uid == volume.uid;
            is_own && points.contains(&running.point) && running.succeeded()
        })
    }

    /// Takes a volume from its claim: because the claim has another volume, because the volume was scrubbed,
    /// or because the operator lets it be offered again with its data.
    pub(super) fn unbind(&self, target: &VolumeTarget, clear: Clear) -> Result<(), Objection> {
        let volume = self.volume(target)?;
        let whole = clear == Clear::Whole;
        if whole != volume.annotations.bound_by_controller {
            let sentence = format!(
                "{clear:?} of spec.claimRef would be cleared, with bound-by-controller {}",
                volume.annotations.bound_by_controller
            );
            return self.refuse_volume(Breach::UnbindWrong, &volume, sentence);
        }
        let recycled = self.has_reached(OperationKind::Recycle, &volume, &[Point::Recycled]);
        match self.former_claim(&volume)? {
            FormerClaim::Elsewhere if is_surplus(&volume) => {
                let sentence = "it was provisioned with policy Delete for its claim, which has another \
                                volume: it is deleted, not unbound";
                self.refuse_elsewhere(Breach::UnbindWrong, &volume, sentence)
            }
            FormerClaim::Elsewhere => Ok(()),
            FormerClaim::Gone if recycled => Ok(()),
            FormerClaim::Gone => self.may_offer_again(&volume),
        }
    }

    fn may_offer_again(&self, volume: &Volume) -> Result<(), Objection> {
        let reclaim = self.reclaim_of(volume)?;
        if reclaim.fate == Fate::OfferAgain && reclaim.is_allowed && !volume.deleting {
            return Ok(());
        }
        let sentence = if !self.case.view.allows_offer_again() {
            "its claim is gone and the next one would see its data"
        } else if volume.phase != VolumePhase::Released || volume.deleting {
            "only a released volume that is not being deleted is offered again"
        } else {
            return Ok(());
        };
        self.refuse_volume(Breach::OfferedAgain, volume, sentence)
    }

    /// Deletes the volume object, after its own delete operation deleted the asset; no claim needs it.
    pub(super) fn delete(&self, target: &VolumeTarget) -> Result<(), Objection> {
        let volume = self.volume(target)?;
        if !self.has_reached(OperationKind::Delete, &volume, &[Point::Deleted, Point::FinalizerRemoved]) {
            let sentence = "the object may go only after its own delete operation has deleted the asset";
            return self.refuse_volume(Breach::OutOfPlace, &volume, sentence);
        }
        match volume.claim_ref.as_ref().and_then(|claim_ref| claim_ref.uid.as_ref()) {
            Some(_) => self.former_claim(&volume).map(|_| ()),
            // No claim has it, and a reservation would change the version that the deletion names.
            None => self.readable_claim_of(&volume),
        }
    }
}

/// Whether the volume's claim has left it.
pub(super) fn is_released(volume: &Volume) -> bool {
    matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed)
}

/// Whether an external provisioner reclaims the volume.
pub(super) fn is_migrated(volume: &Volume) -> bool {
    volume.annotations.migrated_to.as_ref().is_some_and(|driver| !driver.is_empty())
}

fn has(volume: &Volume, finalizer: &str) -> bool {
    volume.finalizers.iter().any(|f| **f == *finalizer)
}
