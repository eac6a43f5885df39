//! The check of one step: the objects that it names, and what all rules share.

use super::case::Ref;
use super::effects::Effects;
use super::{Breach, Case, Objection, Refusal};
use crate::{Action, Claim, ClaimKey, ClaimRef, ClaimTarget, Key, Lookup, Text, Volume, VolumeTarget};

/// Checks one step, on the objects as the steps before it left them.
#[derive(Clone, Copy)]
pub(super) struct StepCheck<'a> {
    pub(super) case: &'a Case<'a>,
    pub(super) effects: &'a Effects,
    /// Index of the step; `None` for the decision as a whole.
    pub(super) step: Option<u32>,
}

impl<'a> StepCheck<'a> {
    /// Checks the step by the rules for its action.
    pub(super) fn check(&self, action: &Action) -> Result<(), Objection> {
        match action {
            Action::ReserveVolume { volume, claim, mark } => self.reserve(volume, claim, *mark),
            Action::SetVolumePhase { volume, phase, message } => self.volume_phase(volume, *phase, message),
            Action::BindClaim { claim, volume, set_volume_name, mark } => {
                self.bind_claim(claim, volume, *set_volume_name, *mark)
            }
            Action::SetClaimStatus { claim, .. } => self.claim_status(claim, action),
            Action::SetClaimClass { claim, class } => self.claim_class(claim, class),
            Action::AnnotateClaim { claim, provisioner, migrated_to } => {
                self.annotate_claim(claim, provisioner.as_ref(), migrated_to)
            }
            Action::RemoveSelectedNode { claim } => self.remove_selected_node(claim),
            Action::AnnotateVolume { volume, migrated_to, in_tree_finalizer, external_finalizer } => {
                self.annotate_volume(volume, migrated_to, *in_tree_finalizer, *external_finalizer)
            }
            Action::SetReclaimPolicy { volume, policy } => self.reclaim_policy(volume, *policy),
            Action::UnbindVolume { volume, clear } => self.unbind(volume, *clear),
            Action::CreateVolume { claim, name, class, plugin } => self.create(claim, name, class, plugin),
            Action::DeleteVolume { volume } => self.delete(volume),
            Action::StartOperation(operation) => self.start(operation),
            Action::CallPlugin { plugin, operation } => self.call(plugin, *operation),
            Action::Emit(_) | Action::EnqueueClaim(_) => Ok(()),
        }
    }

    /// The effects of the steps before and of this one.
    pub(super) fn apply(&self, action: &Action) -> Effects {
        let mut after = self.effects.clone();
        match action {
            Action::BindClaim { claim, .. }
            | Action::SetClaimStatus { claim, .. }
            | Action::SetClaimClass { claim, .. }
            | Action::AnnotateClaim { claim, .. }
            | Action::RemoveSelectedNode { claim } => {
                if let Ok(before) = self.claim(claim) {
                    after.write_claim(&before, action);
                }
            }
            Action::ReserveVolume { volume, .. }
            | Action::SetVolumePhase { volume, .. }
            | Action::AnnotateVolume { volume, .. }
            | Action::SetReclaimPolicy { volume, .. }
            | Action::UnbindVolume { volume, .. }
            | Action::DeleteVolume { volume } => {
                if let Ok(before) = self.volume(volume) {
                    after.write_volume(&before, action);
                }
            }
            Action::CreateVolume { .. }
            | Action::Emit(_)
            | Action::EnqueueClaim(_)
            | Action::StartOperation(_)
            | Action::CallPlugin { .. } => {}
        }
        after
    }

    /// The claim that the step names (G5), which can be read (G7).
    pub(super) fn claim(&self, target: &ClaimTarget) -> Result<Ref<'a, Claim>, Objection> {
        let object = || Key::Claim(target.key.clone());
        self.readable_claim(&target.key, object)?;
        if let Some(written) = self.effects.claim(&target.uid) {
            return if written.version == target.version && written.key == target.key {
                Ok(Ref::Borrowed(written))
            } else {
                Err(self.two_versions(object(), &written.version.0, &target.version.0))
            };
        }
        self.case.claim(target)?.ok_or_else(|| self.not_read(object(), &target.uid.0, &target.version.0))
    }

    /// The volume that the step names (G5), which can be read (G7).
    pub(super) fn volume(&self, target: &VolumeTarget) -> Result<Ref<'a, Volume>, Objection> {
        let object = || Key::Volume(target.name.clone());
        self.readable_volume(&target.name, object)?;
        if self.effects.deleted.contains(&target.uid) {
            return self.refuse(Breach::NotRead, object(), "an earlier step deletes it".into());
        }
        if let Some(written) = self.effects.volume(&target.uid) {
            return if written.version == target.version && written.name == target.name {
                Ok(Ref::Borrowed(written))
            } else {
                Err(self.two_versions(object(), &written.version.0, &target.version.0))
            };
        }
        self.case.volume(target)?.ok_or_else(|| self.not_read(object(), &target.uid.0, &target.version.0))
    }

    /// The claim whose UID a volume's claimRef carries: as an earlier step left it, else as it was read.
    pub(super) fn claim_of(&self, volume: &Volume) -> Option<Ref<'a, Claim>> {
        let claim_ref = volume.claim_ref.as_ref()?;
        let uid = claim_ref.uid.as_ref()?;
        match self.effects.claim(uid) {
            Some(written) => Some(Ref::Borrowed(written)),
            None => self.case.claim_of(&key_of(claim_ref), uid),
        }
    }

    /// The volume of that name: as an earlier step left it, else as it was read.
    pub(super) fn volume_named(&self, name: &str) -> Lookup<Ref<'a, Volume>> {
        match self.effects.volume_named(name) {
            Some(written) if self.effects.deleted.contains(&written.uid) => Lookup::Absent,
            Some(written) => Lookup::Found(Ref::Borrowed(written)),
            None => self.case.volume_named(name),
        }
    }

    /// Checks that a condition still holds for a volume that the decision does not write itself: the write of
    /// another object has no precondition on this one.
    pub(super) fn still_volume(
        &self,
        volume: &Volume,
        what: &'static str,
        holds: impl Fn(&Volume) -> bool,
    ) -> Result<(), Objection> {
        if self.effects.volume(&volume.uid).is_some() {
            return Ok(());
        }
        match self.case.view.volume(&volume.name) {
            Lookup::Found(now) if now.uid == volume.uid && holds(&now) => Ok(()),
            _ => Err(Objection::Stale { object: Key::Volume(volume.name.clone()), what }),
        }
    }

    /// Checks that a condition still holds for a claim that the decision does not write itself. A live read
    /// made for this decision outranks the overlay, which may lag.
    pub(super) fn still_claim(
        &self,
        claim: &Claim,
        what: &'static str,
        holds: impl Fn(&Claim) -> bool,
    ) -> Result<(), Objection> {
        if self.effects.claim(&claim.uid).is_some() {
            return Ok(());
        }
        let overlay;
        let now = match self.case.live_claim(&claim.key) {
            Some(live @ (Lookup::Found(_) | Lookup::Absent)) => live,
            Some(Lookup::Failed(_) | Lookup::Unreadable(_)) | None => {
                overlay = self.case.view.claim(&claim.key);
                &overlay
            }
        };
        match now {
            Lookup::Found(now) if now.uid == claim.uid && holds(now) => Ok(()),
            _ => Err(Objection::Stale { object: Key::Claim(claim.key.clone()), what }),
        }
    }

    /// The claim of that key must be readable or absent (G7).
    pub(super) fn readable_claim(
        &self,
        key: &ClaimKey,
        acted_on: impl FnOnce() -> Key,
    ) -> Result<(), Objection> {
        match self.case.unreadable_claim(key) {
            Some(error) => self.unreadable(acted_on(), &format!("claim {key}"), &error),
            None => Ok(()),
        }
    }

    /// The volume of that name must be readable or absent (G7).
    pub(super) fn readable_volume(
        &self,
        name: &str,
        acted_on: impl FnOnce() -> Key,
    ) -> Result<(), Objection> {
        match self.case.unreadable_volume(name) {
            Some(error) => self.unreadable(acted_on(), &format!("volume {name}"), &error),
            None => Ok(()),
        }
    }

    /// The claim that the volume names must be readable or absent (G7).
    pub(super) fn readable_claim_of(&self, volume: &Volume) -> Result<(), Objection> {
        match &volume.claim_ref {
            Some(claim_ref) => self.readable_claim(&key_of(claim_ref), || Key::Volume(volume.name.clone())),
            None => Ok(()),
        }
    }

    /// Refuses the step.
    pub(super) fn refuse<T>(&self, breach: Breach, object: Key, sentence: String) -> Result<T, Objection> {
        Err(self.refusal(breach, object, sentence))
    }

    /// Refuses the step, for a volume.
    pub(super) fn refuse_volume<T>(
        &self,
        breach: Breach,
        volume: &Volume,
        sentence: impl Into<String>,
    ) -> Result<T, Objection> {
        self.refuse(breach, Key::Volume(volume.name.clone()), sentence.into())
    }

    /// Refuses the step, for a claim.
    pub(super) fn refuse_claim<T>(
        &self,
        breach: Breach,
        claim: &Claim,
        sentence: impl Into<String>,
    ) -> Result<T, Objection> {
        self.refuse(breach, Key::Claim(claim.key.clone()), sentence.into())
    }

    /// Refuses the step, for the subject of the request.
    pub(super) fn refuse_subject<T>(
        &self,
        breach: Breach,
        sentence: impl Into<String>,
    ) -> Result<T, Objection> {
        self.refuse(breach, self.case.request.subject.key(), sentence.into())
    }

    fn refusal(&self, breach: Breach, object: Key, sentence: String) -> Objection {
        Objection::Refused(Refusal { breach, object, step: self.step, sentence })
    }

    fn unreadable<T>(&self, object: Key, what: &str, error: &Text) -> Result<T, Objection> {
        self.refuse(Breach::Unreadable, object, format!("{what} cannot be read: {error}"))
    }

    pub(super) fn not_read(&self, object: Key, uid: &str, version: &str) -> Objection {
        let sentence = format!("metadata.uid {uid:?} at resourceVersion {version:?} was not read");
        self.refusal(Breach::NotRead, object, sentence)
    }

    fn two_versions(&self, object: Key, first: &str, second: &str) -> Objection {
        let sentence = format!("one step names resourceVersion {first:?} and a later one {second:?}");
        self.refusal(Breach::TwoVersions, object, sentence)
    }
}

/// The key that a claimRef names.
pub(super) fn key_of(claim_ref: &ClaimRef) -> ClaimKey {
    ClaimKey { namespace: claim_ref.namespace.clone(), name: claim_ref.name.clone() }
}
