//! G9 for claims: status, class, annotations.

use super::bind::carries;
use super::step::StepCheck;
use super::{Breach, Objection};
use crate::{
    Action, CapacityChange, Claim, ClaimPhase, ClaimTarget, Edit, Key, Lookup, Migration, OperationKind,
    Point, Text, Volume, VolumePhase,
};

impl StepCheck<'_> {
    /// The status of a claim (upstream's `updateClaimStatus`).
    pub(super) fn claim_status(&self, target: &ClaimTarget, action: &Action) -> Result<(), Objection> {
        let before = self.claim(target)?;
        if let Some(name) = &before.volume_name {
            self.readable_volume(name, || Key::Claim(target.key.clone()))?;
        }
        let effects = self.apply(action);
        let Some(after) = effects.claim(&target.uid) else { return Ok(()) };
        match after.status.phase {
            ClaimPhase::Pending => self.pending(&before, after),
            ClaimPhase::Bound => self.bound_status(&before, after, action),
            ClaimPhase::Lost => self.lost(&before, after),
            ClaimPhase::Unset => {
                self.refuse_claim(Breach::ClaimPhaseWrong, &before, "status.phase would become unset")
            }
        }
    }

    /// Pending: it was never bound, and nothing of a volume stays in its status.
    fn pending(&self, before: &Claim, after: &Claim) -> Result<(), Objection> {
        if before.annotations.bind_completed {
            let sentence = "it has bind-completed, so it is Bound or Lost and never Pending";
            return self.refuse_claim(Breach::ClaimPhaseWrong, before, sentence);
        }
        self.cleared(before, after)
    }

    /// Lost: it was bound, and its volumeName is empty or, by a live read, names a volume that is gone or
    /// another claim's.
    fn lost(&self, before: &Claim, after: &Claim) -> Result<(), Objection> {
        if !before.annotations.bind_completed {
            let sentence = "it has no bind-completed, so it is Pending and never Lost";
            return self.refuse_claim(Breach::ClaimPhaseWrong, before, sentence);
        }
        if let Some(name) = &before.volume_name {
            self.has_lost(before, name)?;
        }
        self.cleared(before, after)
    }

    fn has_lost(&self, claim: &Claim, name: &Text) -> Result<(), Objection> {
        let is_other = |volume: &Volume| volume.claim_ref.is_some() && !carries(volume, claim);
        match self.volume_named(name) {
            Lookup::Found(volume) if !is_other(&volume) => {
                let sentence = format!("its volume {name} exists and is free or its own");
                return self.refuse_claim(Breach::PairBroken, claim, sentence);
            }
            Lookup::Failed(error) => {
                let sentence = format!("its volume {name} could not be read: {error}");
                return self.refuse_claim(Breach::ClaimPhaseWrong, claim, sentence);
            }
            Lookup::Found(_) | Lookup::Absent | Lookup::Unreadable(_) => {}
        }
        match self.case.view.volume(name) {
            Lookup::Absent => {}
            Lookup::Found(now) if is_other(&now) => {}
            Lookup::Found(_) | Lookup::Unreadable(_) | Lookup::Failed(_) => {
                let object = Key::Claim(claim.key.clone());
                return Err(Objection::Stale { object, what: "its volume is back" });
            }
        }
        match self.volume_now(claim, name)? {
            Some(now) if !is_other(now) => {
                let object = Key::Volume(name.clone());
                Err(Objection::Contradicted { object, found: "exists and is free or its claim's own" })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn cleared(&self, before: &Claim, after: &Claim) -> Result<(), Objection> {
        let status = &after.status;
        if !status.access_modes.is_empty() || status.has_capacity || status.attributes_class.is_some() {
            let sentence = format!(
                "status.phase {:?} leaves accessModes, capacity or currentVolumeAttributesClassName behind",
                status.phase.name()
            );
            return self.refuse_claim(Breach::StatusWrong, before, sentence);
        }
        Ok(())
    }

    /// Bound: the last write of a bind, on a complete pair; the status is the volume's.
    fn bound_status(&self, before: &Claim, after: &Claim, action: &Action) -> Result<(), Objection> {
        let volume = match before.volume_name.as_ref().map(|name| self.volume_named(name)) {
            Some(Lookup::Found(volume)) if before.annotations.bind_completed => volume,
            _ => {
                let sentence =
                    "it becomes Bound only with bind-completed and a volumeName whose volume exists";
                return self.refuse_claim(Breach::BindOrder, before, sentence);
            }
        };
        let is_whole = |volume: &Volume| carries(volume, before) && volume.phase == VolumePhase::Bound;
        if !is_whole(&volume) {
            let sentence = format!("volume {} does not carry its UID or is not Bound", volume.name);
            return self.refuse_claim(Breach::BindOrder, before, sentence);
        }
        self.still_volume(&volume, "it is no longer bound to the claim", is_whole)?;
        if after.status.access_modes != volume.access_modes {
            let sentence = format!(
                "status.accessModes would be {:?}, while volume {} has {:?}",
                after.status.access_modes, volume.name, volume.access_modes
            );
            return self.refuse_claim(Breach::StatusWrong, before, sentence);
        }
        self.bound_capacity(before, after, &volume, action)?;
        let is_first = before.status.phase == ClaimPhase::Pending;
        let wanted = if is_first { &volume.attributes_class } else { &before.status.attributes_class };
        if after.status.attributes_class != *wanted {
            let sentence = format!(
                "status.currentVolumeAttributesClassName would be {:?}, not {wanted:?}",
                after.status.attributes_class
            );
            return self.refuse_claim(Breach::StatusWrong, before, sentence);
        }
        Ok(())
    }

    /// The capacity is the volume's when the phase changes; after that the resizer owns it.
    fn bound_capacity(
        &self,
        before: &Claim,
        after: &Claim,
        volume: &Volume,
        action: &Action,
    ) -> Result<(), Objection> {
        let Action::SetClaimStatus { capacity: change, .. } = action else { return Ok(()) };
        let changes = before.status.phase != ClaimPhase::Bound;
        let wanted = match volume.annotations.pre_resize_capacity {
            _ if !changes => before.status.capacity,
            None => volume.capacity,
            Some(amount) => Some(amount),
        };
        let fits = match (volume.annotations.pre_resize_capacity, change) {
            (_, CapacityChange::Keep) => true,
            // Until the filesystem is resized, other keys of status.capacity stay.
            (Some(_), CapacityChange::Storage(_)) => changes,
            (None, CapacityChange::Whole(_)) => changes,
            (_, CapacityChange::Remove | CapacityChange::Storage(_) | CapacityChange::Whole(_)) => false,
        };
        if !fits || after.status.capacity != wanted || (changes && volume.capacity.is_none()) {
            let sentence = format!(
                "status.capacity would be set by {change:?}, while volume {} has capacity {:?} \
                 and pre-resize-capacity {:?}",
                volume.name, volume.capacity, volume.annotations.pre_resize_capacity
            );
            return self.refuse_claim(Breach::StatusWrong, before, sentence);
        }
        Ok(())
    }

    /// A default class, for an unbound claim without one (KEP-3333).
    pub(super) fn claim_class(&self, target: &ClaimTarget, class: &Text) -> Result<(), Objection> {
        let claim = self.claim(target)?;
        if is_settled(&claim) || claim.class.is_some() {
            let sentence = format!(
                "spec.storageClassName would become {class:?}, but it is {:?} or the claim has a volume",
                claim.class
            );
            return self.refuse_claim(Breach::ClassNotDefault, &claim, sentence);
        }
        match self.case.view.class(class) {
            Lookup::Found(found) if found.default => self.policies_answer(&claim),
            _ if self.case.was_default(class) => {
                let object = Key::Claim(claim.key.clone());
                Err(Objection::Stale { object, what: "the class is no longer a default class" })
            }
            _ => {
                let sentence =
                    format!("spec.storageClassName would become {class:?}, which is not a default class");
                self.refuse_claim(Breach::ClassNotDefault, &claim, sentence)
            }
        }
    }

    /// A claim whose policies give no answer may get a volume that exists, later: neither a class nor a new
    /// volume can be taken back (G10).
    pub(super) fn policies_answer(&self, claim: &Claim) -> Result<(), Objection> {
        match self.case.view.policies_answer(claim) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Objection::Judge),
            Err(why) => Err(Objection::Unproven { object: Key::Claim(claim.key.clone()), why }),
        }
    }

    /// The provisioner annotations, in a provision operation, and migrated-to.
    pub(super) fn annotate_claim(
        &self,
        target: &ClaimTarget,
        provisioner: Option<&Text>,
        migrated_to: &Edit<Text>,
    ) -> Result<(), Objection> {
        let claim = self.claim(target)?;
        if let Some(provisioner) = provisioner {
            self.may_hand_over(&claim, provisioner)?;
        }
        let annotations = &claim.annotations;
        let source = provisioner
            .or(annotations.storage_provisioner.as_ref())
            .or(annotations.beta_storage_provisioner.as_ref());
        if !self.may_migrate(source.map(|s| &**s), annotations.migrated_to.as_deref(), migrated_to) {
            let sentence = format!("migrated-to cannot become {migrated_to:?} with provisioner {source:?}");
            return self.refuse_claim(Breach::AnnotationWrong, &claim, sentence);
        }
        Ok(())
    }

    /// Whether the claim is handed to that provisioner: its class's, or the CSI driver that one migrates to.
    fn may_hand_over(&self, claim: &Claim, provisioner: &Text) -> Result<(), Objection> {
        let running = self.case.running().filter(|running| {
            matches!(running.kind, OperationKind::ProvisionExternal | OperationKind::Provision)
                && *running.uid == claim.uid
                && running.point == Point::Start
        });
        let Some(running) = running else {
            let sentence =
                "its provisioner annotations are written only at the start of its own provision operation";
            return self.refuse_claim(Breach::OutOfPlace, claim, sentence);
        };
        let class = self.case.class(claim.class.as_deref().unwrap_or_default()).found();
        let named = class.map(|class| class.provisioner.clone());
        let is_named = named.as_ref() == Some(provisioner) || running.plugin == provisioner;
        let translates = |from: &Text| match self.case.migration(from) {
            Some(Migration::On(driver)) => Some(driver == provisioner),
            _ => None,
        };
        // A migrated provisioner is named by its driver only.
        let migrated = named.as_ref().and_then(translates).or_else(|| translates(running.plugin));
        if is_settled(claim) || !migrated.unwrap_or(is_named) {
            let sentence = format!(
                "storage-provisioner would become {provisioner:?}, but \
                 its class has {named:?}, or it has a volume"
            );
            return self.refuse_claim(Breach::AnnotationWrong, claim, sentence);
        }
        Ok(())
    }

    /// Lets the scheduler choose another node, after the in-tree plugin has failed on this one.
    pub(super) fn remove_selected_node(&self, target: &ClaimTarget) -> Result<(), Objection> {
        let claim = self.claim(target)?;
        let is_due = self.case.running().is_some_and(|running| {
            running.kind == OperationKind::Provision
                && *running.uid == claim.uid
                && running.point == Point::Provisioned
                && running.failed()
        });
        if !is_due || claim.annotations.selected_node.is_none() {
            let sentence =
                "selected-node goes only after its own provision operation has failed on that node";
            return self.refuse_claim(Breach::OutOfPlace, &claim, sentence);
        }
        Ok(())
    }
}

/// Whether the claim has a volume, or had one.
pub(super) fn is_settled(claim: &Claim) -> bool {
    claim.annotations.bind_completed || claim.volume_name.is_some()
}
