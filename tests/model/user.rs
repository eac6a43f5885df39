//! What users and the protection controllers do to objects.

use bindery_core::{ClaimRef, Text, Volume};
use bindery_invariants::Rule;

use crate::objects::{Contents, Each, Id, NAMESPACE, Seen, Stored, is_protection};

/// What a user does by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Takes the claimRef from a volume.
    ClearClaimRef(Id),
    /// Reserves a free volume for a claim, by name.
    ReserveByName(Id, Id),
    /// Reserves a free volume for a claim, by UID, as the scheduler does.
    ReserveByUid(Id, Id),
    /// Has a claim without volume name one.
    NameVolume(Id, Id),
    /// Removes bind-completed from a claim.
    Unmark(Id),
    /// Adds bind-completed to a claim that names a volume, as a restore from a backup does.
    Complete(Id),
}

impl Edit {
    /// The object after the edit; `None` if the edit is not possible.
    pub(crate) fn apply(self, contents: &Contents, now: &Each<Seen>) -> Option<(Id, Stored)> {
        let volume =
            |id: Id| contents.get(now[id.index()].content).volume().map(|volume| Volume::clone(volume));
        let claim = |id: Id| contents.get(now[id.index()].content).claim().map(|claim| (**claim).clone());
        match self {
            Self::ClearClaimRef(id) => {
                let mut volume = volume(id)?;
                volume.claim_ref.take()?;
                Some((id, volume.into()))
            }
            Self::ReserveByName(id, of) => {
                let volume = volume(id).filter(|volume| volume.claim_ref.is_none())?;
                Some((id, Volume { claim_ref: Some(reference(of, None)), ..volume }.into()))
            }
            Self::ReserveByUid(id, of) => {
                let volume = volume(id).filter(|volume| volume.claim_ref.is_none())?;
                let uid = claim(of)?.uid.0;
                Some((id, Volume { claim_ref: Some(reference(of, Some(uid))), ..volume }.into()))
            }
            Self::NameVolume(id, named) => {
                let mut claim = claim(id).filter(|claim| claim.volume_name.is_none())?;
                claim.volume_name = Some(named.name().into());
                Some((id, claim.into()))
            }
            Self::Unmark(id) => {
                let mut claim = claim(id).filter(|claim| claim.annotations.bind_completed)?;
                claim.annotations.bind_completed = false;
                Some((id, claim.into()))
            }
            Self::Complete(id) => {
                let mut claim = claim(id).filter(|claim| claim.volume_name.is_some())?;
                (!std::mem::replace(&mut claim.annotations.bind_completed, true)).then(|| (id, claim.into()))
            }
        }
    }

    /// Rules that are broken by the edit, or by what may follow from it.
    pub(crate) fn breaks(self) -> &'static [Rule] {
        match self {
            // The volume is free. Another claim may find it before its claim gets it back, and the volume may
            // be deleted with that one.
            Self::ClearClaimRef(_) => &[Rule::OneClaim, Rule::PointsBack, Rule::VolumeKept],
            // The claim may never have been bound to the volume that it names.
            Self::Complete(_) => &[Rule::OneClaim, Rule::PointsBack, Rule::VolumeKept],
            // A bound claim without the mark is decided like one that was never bound.
            Self::Unmark(_) => &[Rule::Marked],
            Self::ReserveByName(..) | Self::ReserveByUid(..) | Self::NameVolume(..) => &[],
        }
    }
}

/// The state of an object that its protection controller releases; `None` if it is not released.
pub(crate) fn release(contents: &Contents, seen: Seen) -> Option<Stored> {
    match contents.get(seen.content) {
        Stored::Absent => None,
        // No pod uses a claim.
        Stored::Claim(claim) => claim.deleting.then_some(Stored::Absent),
        Stored::Volume(volume) => {
            let mut volume = Volume::clone(volume);
            let is_protected = volume.finalizers.iter().any(is_protection);
            let is_bound = volume.phase == bindery_core::VolumePhase::Bound;
            volume.finalizers.retain(|finalizer| !is_protection(finalizer));
            (volume.deleting && is_protected && !is_bound).then(|| volume.into())
        }
    }
}

fn reference(of: Id, uid: Option<Text>) -> ClaimRef {
    ClaimRef { namespace: NAMESPACE.into(), name: of.name().into(), uid: uid.map(bindery_core::Uid) }
}
