//! What the next write for a steered claim is, from the claim and the volumes that concern it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bindery_core::steer::{Choice, Reservation, SteerWrite, fence};
use bindery_core::{Claim, ClaimPhase, ClaimTarget, Text, Volume, VolumePhase};

/// A claim and the volumes that concern it, as the overlay has them.
pub(crate) struct ClaimAndVolumes<'a> {
    /// The claim; `None` if it does not exist.
    pub(crate) claim: Option<&'a Claim>,
    /// The volumes whose claimRef has its namespace and name.
    pub(crate) naming: &'a [Arc<Volume>],
    /// The volume of the claim's choice.
    pub(crate) chosen: Option<&'a Volume>,
    /// Volumes whose reservation may be a person's, although the annotation says that it is Bindery's.
    pub(crate) kept: &'a BTreeSet<Text>,
}

/// What is to be done for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing.
    Rest,
    /// This write.
    Write(SteerWrite),
    /// A volume is reserved: the claim is touched until it is bound.
    Touch(ClaimTarget),
    /// A volume has to be chosen.
    Choose,
}

/// What is to be done next for a claim. A reservation that nothing needs comes first: its volume is offered
/// on.
pub(crate) fn next(state: &ClaimAndVolumes<'_>) -> Next {
    if let Some(write) = state.naming.iter().find_map(|volume| undo(state, volume)) {
        return Next::Write(write);
    }
    let Some(claim) = state.claim.filter(|claim| claim.waits_steered()) else { return Next::Rest };
    if let Some(volume) = state.naming.iter().find(|volume| volume.is_bound_to(claim)) {
        // Upstream cannot carry out one that was kept: it was to be removed.
        let is_own = volume.reservation().is_some_and(|reservation| reservation.uid == claim.uid)
            && !state.kept.contains(&volume.name);
        return if is_own { Next::Touch(claim.target()) } else { Next::Rest };
    }
    let Some(choice) = claim.choice.as_deref() else { return Next::Choose };
    let free = state.chosen.filter(|volume| volume.uid == choice.uid && volume.claim_ref.is_none());
    match free {
        Some(volume) if !choice.withdrawn => {
            Next::Write(SteerWrite::Reserve { volume: volume.target(), reservation: Reservation::of(claim) })
        }
        None if !choice.withdrawn => Next::Write(withdrawal(claim, choice)),
        Some(volume) if volume.annotations.fence != Some(fence(&claim.target())) => {
            Next::Write(SteerWrite::Fence { volume: volume.target(), claim: claim.target() })
        }
        Some(_) | None => Next::Choose,
    }
}

/// The write that withdraws a choice.
pub(crate) fn withdrawal(claim: &Claim, choice: &Choice) -> SteerWrite {
    SteerWrite::Choose { claim: claim.target(), choice: Choice { withdrawn: true, ..choice.clone() } }
}

/// The write that removes Bindery's reservation from a volume, or the annotation of one that upstream has
/// carried out.
fn undo(state: &ClaimAndVolumes<'_>, volume: &Volume) -> Option<SteerWrite> {
    if let Some(reservation) = volume.reservation() {
        let is_needed = state.claim.is_some_and(|claim| is_needed(claim, volume, reservation));
        let is_undone = !is_needed && !state.kept.contains(&volume.name);
        return is_undone.then(|| SteerWrite::Release { volume: volume.target() });
    }
    let uid = volume.claim_ref.as_ref()?.uid.as_ref()?;
    // Upstream's next write of the volume would fail before that.
    let is_done = volume.phase != VolumePhase::Available;
    let binds = |claim: &Claim| claim.uid == *uid && claim.status.phase != ClaimPhase::Bound;
    let is_left = volume.annotations.reserved_for.is_some() && is_done && !state.claim.is_some_and(binds);
    is_left.then(|| SteerWrite::Forget { volume: volume.target() })
}

/// Whether a claim needs the volume that Bindery has reserved: the reservation is for its UID, its choice is
/// the volume or it is bound to it, and upstream would carry it out (`FindMatchingVolume`).
fn is_needed(claim: &Claim, volume: &Volume, reservation: &Reservation) -> bool {
    let is_chosen = match (&claim.volume_name, claim.choice.as_deref()) {
        (Some(name), _) => *name == volume.name,
        (None, Some(choice)) => !choice.withdrawn && choice.volume == volume.name && choice.uid == volume.uid,
        (None, None) => false,
    };
    is_chosen && claim.uid == reservation.uid && can_have(claim, volume)
}

/// Whether upstream gives the claim a volume that is reserved for it: phase, class and labels do not count.
fn can_have(claim: &Claim, volume: &Volume) -> bool {
    !volume.deleting
        && volume.capacity.unwrap_or_default() >= claim.request
        && volume.mode == claim.mode
        && volume.attributes_class_or_empty() == claim.attributes_class_or_empty()
        && volume.access_set().contains(claim.access_set())
}
