//! G1 to G3: which volume may get which claim, and in which order the pointers are written.

use super::step::StepCheck;
use super::{Breach, Objection};
use crate::{
    BindingMode, Claim, ClaimRef, ClaimTarget, Key, Lookup, MatchVerdict, Quantity, Requirement, Selector,
    SelectorOperator, Volume, VolumePhase, VolumeTarget,
};

impl StepCheck<'_> {
    /// First write of a bind: the volume's claimRef becomes the claim's.
    pub(super) fn reserve(
        &self,
        volume: &VolumeTarget,
        claim: &ClaimTarget,
        mark: bool,
    ) -> Result<(), Objection> {
        let volume = self.volume(volume)?;
        let claim = self.claim(claim)?;
        self.legal(&claim, &volume)?;
        self.still_claim(&claim, "it may not have the volume any more", |now| {
            self.legal(now, &volume).is_ok()
        })?;
        if let Some(other) = self.effects.volumes.iter().find(|v| v.uid != volume.uid && carries(v, &claim)) {
            let sentence = format!("an earlier step gives volume {} to claim {}", other.name, claim.key);
            return self.refuse_volume(Breach::BindOrder, &volume, sentence);
        }
        // Upstream marks a volume that it chose, which is one that did not point at the claim before.
        let chosen = !volume.claim_ref.as_ref().is_some_and(|claim_ref| names(claim_ref, &claim));
        if mark != chosen && !volume.annotations.bound_by_controller {
            let sentence =
                format!("bound-by-controller would be {mark}, but the binder's own choice is {chosen}");
            return self.refuse_volume(Breach::MarkWrong, &volume, sentence);
        }
        Ok(())
    }

    /// Third write of a bind: the claim's volumeName and bind-completed. The volume must already carry the
    /// claim's UID and be Bound, because a volumeName cannot be taken back and volume protection acts on the
    /// phase. Where no step of this decision wrote the volume, a live read must show it.
    pub(super) fn bind_claim(
        &self,
        claim: &ClaimTarget,
        volume: &VolumeTarget,
        set_volume_name: bool,
        mark: bool,
    ) -> Result<(), Objection> {
        let claim = self.claim(claim)?;
        let volume = self.volume(volume)?;
        self.legal(&claim, &volume)?;
        let holds = |volume: &Volume| carries(volume, &claim) && volume.phase == VolumePhase::Bound;
        if !holds(&volume) {
            let sentence = format!(
                "it would get volume {}, whose spec.claimRef does not carry its UID yet or whose \
                 status.phase is {:?}, not \"Bound\"",
                volume.name,
                volume.phase.name()
            );
            return self.refuse_claim(Breach::BindOrder, &claim, sentence);
        }
        let is_own = |now: &Volume| holds(now) && self.legal(&claim, now).is_ok();
        self.still_volume(&volume, "it is not the claim's any more", is_own)?;
        // The answer to a write of this decision is as good as a read.
        if self.effects.volume(&volume.uid).is_none() {
            match self.volume_now(&claim, &volume.name)? {
                Some(now) if now.uid == volume.uid && is_own(now) => {}
                Some(_) | None => {
                    let object = Key::Volume(volume.name.clone());
                    return Err(Objection::Contradicted { object, found: "is gone or not the claim's" });
                }
            }
        }
        if set_volume_name != claim.volume_name.is_none() {
            let sentence = format!(
                "set-volume-name is {set_volume_name}, but spec.volumeName is {:?}",
                claim.volume_name.as_deref().unwrap_or_default()
            );
            return self.refuse_claim(Breach::BindOrder, &claim, sentence);
        }
        if mark != set_volume_name && !claim.annotations.bound_by_controller {
            let sentence = format!(
                "bound-by-controller would be {mark}, but the binder's own choice is {set_volume_name}"
            );
            return self.refuse_claim(Breach::MarkWrong, &claim, sentence);
        }
        Ok(())
    }

    /// Whether claim and volume may become a pair (G1 to G3). As in upstream, the checks depend on which of
    /// the two already points at the other: `syncUnboundClaim`, `FindMatchingVolume`,
    /// `checkVolumeSatisfyClaim`, `syncBoundClaim`.
    pub(super) fn legal(&self, claim: &Claim, volume: &Volume) -> Result<(), Objection> {
        if let Some(name) = claim.volume_name.as_ref().filter(|name| **name != volume.name) {
            let sentence = format!("spec.volumeName is {name:?} and would become {:?}", volume.name);
            return self.refuse_claim(Breach::VolumeNameSet, claim, sentence);
        }
        if claim.annotations.bind_completed {
            return self.legal_again(claim, volume);
        }
        match &volume.claim_ref {
            None if claim.volume_name.is_some() => {
                self.satisfies(claim, volume, true)?;
                self.allowed(claim, volume)
            }
            None => self.free(claim, volume),
            Some(claim_ref) if !names(claim_ref, claim) => self.taken(claim_ref, claim, volume),
            // Both point at each other: the users have decided.
            Some(_) if claim.volume_name.is_some() => Ok(()),
            // Reserved for the claim: class, phase and labels do not count.
            Some(_) => self.satisfies(claim, volume, false),
        }
    }

    /// A claim that was bound before only gets its own volume back.
    fn legal_again(&self, claim: &Claim, volume: &Volume) -> Result<(), Objection> {
        if claim.volume_name.is_none() {
            let sentence = "it has bind-completed but an empty spec.volumeName";
            return self.refuse_claim(Breach::ReferenceLost, claim, sentence);
        }
        match &volume.claim_ref {
            // Users can write bind-completed, so policies judge such a claim too.
            None => self.allowed(claim, volume),
            Some(claim_ref) => match &claim_ref.uid {
                Some(uid) if *uid == claim.uid => Ok(()),
                Some(_) => self.taken(claim_ref, claim, volume),
                None => {
                    let sentence = format!("spec.claimRef has no uid, while claim {} is bound", claim.key);
                    self.refuse_volume(Breach::UidMissing, volume, sentence)
                }
            },
        }
    }

    fn taken(&self, claim_ref: &ClaimRef, claim: &Claim, volume: &Volume) -> Result<(), Objection> {
        let found = format!("{}/{}", claim_ref.namespace, claim_ref.name);
        let (breach, sentence) = match &claim_ref.uid {
            Some(uid) if *uid != claim.uid => (
                Breach::ClaimRefTaken,
                format!(
                    "spec.claimRef is claim {found} of UID {uid}, not {} of UID {}",
                    claim.key, claim.uid
                ),
            ),
            _ => (Breach::ReservedForOther, format!("spec.claimRef is claim {found}, not {}", claim.key)),
        };
        self.refuse_volume(breach, volume, sentence)
    }

    /// Whether the binder may choose the volume freely.
    pub(super) fn free(&self, claim: &Claim, volume: &Volume) -> Result<(), Objection> {
        // Node affinity does not count: the scheduler checks it, for classes that wait.
        self.does_not_wait(claim, volume)?;
        self.suits(claim, volume)?;
        self.allowed(claim, volume)
    }

    /// Whether upstream may choose the volume, the binder or the scheduler.
    pub(super) fn suits(&self, claim: &Claim, volume: &Volume) -> Result<(), Objection> {
        self.satisfies(claim, volume, true)?;
        if volume.phase != VolumePhase::Available {
            let sentence = format!("status.phase is {:?}, not \"Available\"", volume.phase.name());
            return self.refuse_volume(Breach::NotAvailable, volume, sentence);
        }
        let matches = match &claim.selector {
            None => true,
            Some(Selector::Requirements(requirements)) => requirements.iter().all(|r| is_met(r, volume)),
            Some(Selector::Invalid(_)) => false,
        };
        if !matches {
            let sentence = format!("metadata.labels do not match spec.selector of claim {}", claim.key);
            return self.refuse_volume(Breach::SelectorDiffers, volume, sentence);
        }
        Ok(())
    }

    /// Whether every policy that applies allows the claim a free volume (G10).
    pub(super) fn allowed(&self, claim: &Claim, volume: &Volume) -> Result<(), Objection> {
        match self.case.view.verdict(claim, volume) {
            Ok(Some(MatchVerdict::Allowed)) => Ok(()),
            Ok(Some(MatchVerdict::Rejected { policy, reason })) => {
                let sentence = format!("policy {policy} rejects it for claim {}: {reason}", claim.key);
                self.refuse_volume(Breach::PolicyRejects, volume, sentence)
            }
            Ok(None) => Err(Objection::Judge),
            Err(why) => Err(Objection::Unproven { object: Key::Claim(claim.key.clone()), why }),
        }
    }

    /// Whether a claim may get the volume by naming it, or because it is reserved for the claim. The class
    /// counts only for a volume without claimRef.
    fn satisfies(&self, claim: &Claim, volume: &Volume, class: bool) -> Result<(), Objection> {
        let differs = |breach, field: &str, found: &dyn std::fmt::Debug, wanted: &dyn std::fmt::Debug| {
            let sentence = format!("{field} is {found:?}, while claim {} has {wanted:?}", claim.key);
            self.refuse_volume(breach, volume, sentence)
        };
        if volume.deleting {
            return self.refuse_volume(Breach::Deleting, volume, "metadata.deletionTimestamp is set");
        }
        let capacity = volume.capacity.unwrap_or(Quantity::ZERO);
        if capacity < claim.request {
            let sentence =
                format!("spec.capacity is {capacity}, while claim {} asks for {}", claim.key, claim.request);
            return self.refuse_volume(Breach::TooSmall, volume, sentence);
        }
        let wanted = claim.class.as_deref().unwrap_or_default();
        if class && *volume.class != *wanted {
            return differs(Breach::ClassDiffers, "spec.storageClassName", &volume.class, &wanted);
        }
        let (found, wanted) = (&volume.attributes_class, &claim.attributes_class);
        if found.as_deref().unwrap_or_default() != wanted.as_deref().unwrap_or_default() {
            let field = "spec.volumeAttributesClassName";
            return differs(Breach::AttributesClassDiffers, field, found, wanted);
        }
        if volume.mode != claim.mode {
            return differs(Breach::VolumeModeDiffers, "spec.volumeMode", &volume.mode, &claim.mode);
        }
        if claim.access_modes.iter().any(|mode| !volume.access_modes.contains(mode)) {
            let (found, wanted) = (&volume.access_modes, &claim.access_modes);
            return differs(Breach::AccessModesMissing, "spec.accessModes", found, wanted);
        }
        Ok(())
    }

    pub(super) fn does_not_wait(&self, claim: &Claim, volume: &Volume) -> Result<(), Objection> {
        let Some(class) = claim.class.as_deref().filter(|class| !class.is_empty()) else { return Ok(()) };
        let unknown = |why: &str| {
            let sentence = format!("spec.storageClassName is {class:?}, and {why}");
            self.refuse_claim(Breach::ClassUnknown, claim, sentence)
        };
        match self.case.class(class) {
            // Upstream treats a class that does not exist as one that does not wait.
            Lookup::Absent => Ok(()),
            Lookup::Unreadable(error) | Lookup::Failed(error) => {
                unknown(&format!("that class cannot be read: {error}"))
            }
            Lookup::Found(found) => match found.binding_mode {
                None => unknown("that class has no volumeBindingMode"),
                Some(BindingMode::Immediate) => Ok(()),
                Some(BindingMode::WaitForFirstConsumer) => {
                    let sentence = format!("class {class:?} of claim {} waits for a consumer", claim.key);
                    self.refuse_volume(Breach::WaitsForConsumer, volume, sentence)
                }
            },
        }
    }
}

/// Whether a claimRef names a claim: namespace and name, and the UID unless it has none.
pub(super) fn names(claim_ref: &ClaimRef, claim: &Claim) -> bool {
    claim_ref.namespace == claim.key.namespace
        && claim_ref.name == claim.key.name
        && claim_ref.uid.as_ref().is_none_or(|uid| *uid == claim.uid)
}

/// Whether the volume's claimRef carries the UID of the claim.
pub(super) fn carries(volume: &Volume, claim: &Claim) -> bool {
    volume.claim_ref.as_ref().is_some_and(|claim_ref| claim_ref.uid.as_ref() == Some(&claim.uid))
}

/// Whether the volume's labels meet a requirement (`metav1.LabelSelectorRequirement`).
fn is_met(requirement: &Requirement, volume: &Volume) -> bool {
    let value = volume.labels.get(&requirement.key);
    let is_listed = value.is_some_and(|value| requirement.values.contains(value));
    match requirement.operator {
        SelectorOperator::In => is_listed,
        SelectorOperator::NotIn => !is_listed,
        SelectorOperator::Exists => value.is_some(),
        SelectorOperator::DoesNotExist => value.is_none(),
    }
}
