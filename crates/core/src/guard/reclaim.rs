//! G11: what a reclaimer changes, and what it holds back.

use super::proof::FormerClaim;
use super::step::StepCheck;
use super::{Breach, ObjectName, Objection, Reclaim};
use crate::{Fate, ReclaimPolicy, Subject, Volume, VolumeTarget};

impl StepCheck<'_> {
    /// `spec.persistentVolumeReclaimPolicy` of a volume whose claim is gone becomes what a reclaimer says.
    /// `Retain` is always safer. Another policy must be the one that the volume had before a reclaimer set
    /// `Retain`, or the policy document must allow it.
    pub(super) fn reclaim_policy(
        &self,
        target: &VolumeTarget,
        policy: ReclaimPolicy,
    ) -> Result<(), Objection> {
        let volume = self.volume(target)?;
        if !matches!(&self.case.request.subject, Subject::SyncVolume(subject) if subject.uid == volume.uid) {
            let sentence = "a reclaim policy is set in the sync of the volume only";
            return self.refuse_volume(Breach::OutOfPlace, &volume, sentence);
        }
        let no = |why: String| {
            let sentence = format!(
                "spec.persistentVolumeReclaimPolicy would become {:?}, from {:?}: {why}",
                policy.name(),
                volume.policy.name()
            );
            self.refuse_volume(Breach::ReclaimPolicyWrong, &volume, sentence)
        };
        let Reclaim { fate, is_allowed } = self.reclaim_of(&volume)?;
        if fate.reclaim_policy() != Some(policy) || volume.policy == policy {
            return no(format!("the reclaimers say {fate:?}"));
        }
        let before = volume.policy_before();
        if policy != ReclaimPolicy::Retain && !is_allowed && before != Some(policy) {
            let before = before.map(ReclaimPolicy::name);
            return no(format!("it was {before:?} before, and no policy document allows more"));
        }
        match self.former_claim(&volume)? {
            FormerClaim::Gone => Ok(()),
            FormerClaim::Elsewhere => {
                let sentence = "its claim exists and has another volume";
                self.refuse_elsewhere(Breach::ReclaimPolicyWrong, &volume, sentence)
            }
        }
    }

    /// Whether a volume whose claim is gone may be released, deleted or scrubbed by its own reclaim policy.
    /// An external provisioner deletes a volume as soon as it is Released with policy Delete.
    pub(super) fn not_kept(&self, volume: &Volume) -> Result<(), Objection> {
        let fate = self.reclaim_of(volume)?.fate;
        let is_kept = matches!(fate, Fate::Keep | Fate::KeepFor(_) | Fate::OfferAgain);
        if is_kept && matches!(volume.policy, ReclaimPolicy::Delete | ReclaimPolicy::Recycle) {
            let sentence = format!(
                "the reclaimers say {fate:?}, and spec.persistentVolumeReclaimPolicy is {:?}",
                volume.policy.name()
            );
            return self.refuse_volume(Breach::VolumeKept, volume, sentence);
        }
        Ok(())
    }

    /// What the reclaimers say about a volume.
    pub(super) fn reclaim_of(&self, volume: &Volume) -> Result<Reclaim, Objection> {
        match self.case.view.reclaim(volume) {
            Ok(Some(reclaim)) => Ok(reclaim),
            Ok(None) => Err(Objection::Judge),
            Err(why) => Err(Objection::Unproven { object: ObjectName::Volume(volume.name.clone()), why }),
        }
    }
}
