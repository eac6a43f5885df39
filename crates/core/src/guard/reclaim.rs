//! G11: what a reclaimer changes, and what it holds back.

use super::proof::FormerClaim;
use super::step::StepCheck;
use super::{Breach, Objection, Reclaim};
use crate::{Fate, Key, ReclaimPolicy, Subject, Volume, VolumeTarget};

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
        if wanted(fate) != Some(policy) || volume.policy == policy {
            return no(format!("the reclaimers say: {fate}"));
        }
        let before = volume.policy_before();
        if policy != ReclaimPolicy::Retain && !is_allowed && before != Some(policy) {
            let before = before.map_or("not noted", ReclaimPolicy::name);
            return no(format!("its own policy is {before}, and no policy document allows more"));
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
        if !matches!(volume.policy, ReclaimPolicy::Delete | ReclaimPolicy::Recycle) {
            return Ok(());
        }
        // Its claim never used a surplus volume, so no reclaimer is asked.
        if self.former_claim(volume)? == FormerClaim::Elsewhere {
            return Ok(());
        }
        let fate = self.reclaim_of(volume)?.fate;
        let is_kept = match fate {
            Fate::Keep | Fate::KeepFor(_) => true,
            // A volume that is being deleted is not offered.
            Fate::OfferAgain => !volume.deleting,
            Fate::ByPolicy | Fate::Delete | Fate::Recycle => false,
        };
        if is_kept {
            // The engine has seen the claim with another volume, and asks no reclaimer about a surplus one.
            if self.has_read_claim_of(volume) {
                let object = Key::Volume(volume.name.clone());
                return Err(Objection::Stale { object, what: "its claim is gone, as a live read shows" });
            }
            let sentence = format!(
                "the reclaimers say: {fate}, and spec.persistentVolumeReclaimPolicy is {:?}",
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
            Err(why) => Err(Objection::Unproven { object: Key::Volume(volume.name.clone()), why }),
        }
    }
}

/// The reclaim policy that a fate needs, if it needs one.
fn wanted(fate: Fate) -> Option<ReclaimPolicy> {
    match fate {
        Fate::ByPolicy | Fate::OfferAgain => None,
        Fate::Keep | Fate::KeepFor(_) => Some(ReclaimPolicy::Retain),
        Fate::Delete => Some(ReclaimPolicy::Delete),
        Fate::Recycle => Some(ReclaimPolicy::Recycle),
    }
}
