//! Which writes of mode steer are right, by the text of S1 to S4. It shares no code with the guard.

use bindery_core::steer::{Choice, SteerWrite};
use bindery_core::{Claim, ClaimPhase, Quantity, Volume, VolumePhase};

use crate::case::World;
use crate::steering::{cached, found};
use crate::table::key;

/// Whether a write about claim `c` and volume `v` or `w` may be made.
pub(crate) fn may(write: &SteerWrite, world: &World) -> bool {
    let (volume, claim) = cached(world, "v", "c");
    let (live_volume, live_claim) =
        (found(world.volume_proofs.get("v")), found(world.claim_proofs.get(&key("c"))));
    match write {
        SteerWrite::Choose { choice, .. } => {
            let Some(claim) = claim.filter(|claim| is_waiting(claim)) else { return false };
            match (&claim.choice, choice.withdrawn) {
                (None, withdrawn) => !withdrawn,
                (Some(before), true) => {
                    !before.withdrawn
                        && (&before.volume, &before.uid) == (&choice.volume, &choice.uid)
                        && live_volume
                            .is_some_and(|live| live.uid != choice.uid || !can_get(world, claim, live))
                }
                (Some(before), false) => before.withdrawn && is_fenced(world, claim, before),
            }
        }
        SteerWrite::Fence { .. } => {
            let (Some(claim), Some(volume)) = (claim, volume) else { return false };
            let is_withdrawn = claim.choice.as_ref().is_some_and(|choice| choice.withdrawn);
            is_waiting(claim) && is_withdrawn && chose(claim, volume) && volume.claim_ref.is_none()
        }
        SteerWrite::Reserve { volume: target, reservation } => {
            let (Some(volume), Some(claim)) = (live_volume, live_claim) else { return false };
            let is_active = claim.choice.as_ref().is_some_and(|choice| !choice.withdrawn);
            let named = |name: &str| {
                let other = cached(world, name, "c").0.and_then(|volume| volume.claim_ref.as_ref());
                other
                    .is_some_and(|by| *by.name == *"c" && by.uid.as_ref().is_none_or(|uid| *uid == claim.uid))
            };
            volume.target() == *target
                && claim.uid == reservation.uid
                && is_waiting(claim)
                && is_active
                && chose(claim, volume)
                && !named("w")
                && volume.claim_ref.is_none()
                && can_get(world, claim, volume)
        }
        SteerWrite::Touch { .. } => {
            let (Some(claim), Some(volume)) = (claim, volume) else { return false };
            is_waiting(claim) && reserved_for(volume).is_some_and(|uid| uid == &*claim.uid.0)
        }
        SteerWrite::Release { volume: target } => {
            let Some(volume) = live_volume.filter(|volume| volume.target() == *target) else { return false };
            let Some(uid) = reserved_for(volume) else { return false };
            let needs = |claim: &Claim| {
                let points = match claim.volume_name.as_deref() {
                    Some(name) => name == "v",
                    None => chose(claim, volume) && claim.choice.as_ref().is_some_and(|it| !it.withdrawn),
                };
                &*claim.uid.0 == uid && points && !volume.deleting && fits(claim, volume)
            };
            world.own.contains("v") && !live_claim.is_some_and(needs)
        }
        SteerWrite::Label { reservation, .. } => {
            let (Some(claim), Some(volume)) = (claim, volume) else { return false };
            let is_allowed = !world.verdicts.contains_key(&volume.name);
            let can_get = volume.claim_ref.is_none() && has_room(claim, volume) && is_allowed;
            claim.uid == reservation.uid && is_waiting(claim) && waits_for_pod(claim) && can_get
        }
        SteerWrite::Unlabel { .. } => {
            let label = volume.and_then(|volume| volume.labels.get("c.ns.steer.bindery.dev/claim"));
            label.is_some_and(|value| **value != *"")
        }
        SteerWrite::Forget { .. } => volume.is_some_and(|volume| {
            let is_bound = volume.claim_ref.as_ref().is_some_and(|claim_ref| claim_ref.uid.is_some());
            is_bound && volume.annotations.reserved_for.is_some()
        }),
    }
}

fn is_waiting(claim: &Claim) -> bool {
    let is_bound = claim.volume_name.is_some() || claim.annotations.bind_completed;
    claim.steered && !claim.deleting && !is_bound && claim.status.phase == ClaimPhase::Pending
}

/// Whether the claim's choice is this volume, withdrawn or not.
fn chose(claim: &Claim, volume: &Volume) -> bool {
    claim.choice.as_ref().is_some_and(|choice| choice.volume == volume.name && choice.uid == volume.uid)
}

/// The UID of the claim for which a volume is reserved by name, as its annotation says.
fn reserved_for(volume: &Volume) -> Option<&str> {
    let by = volume.claim_ref.as_ref()?;
    let reserved = volume.annotations.reserved_for.as_ref()?;
    let is_same = reserved.claim.name == by.name && reserved.claim.namespace == by.namespace;
    (is_same && by.uid.is_none()).then_some(&*reserved.uid.0)
}

fn fits(claim: &Claim, volume: &Volume) -> bool {
    volume.capacity.unwrap_or(Quantity::ZERO) >= claim.request
}

/// Whether the claim may get the volume: it names the claim already, or it is free, fits, and is allowed.
fn can_get(world: &World, claim: &Claim, volume: &Volume) -> bool {
    match &volume.claim_ref {
        Some(by) => *by.name == *"c" && by.uid.as_ref().is_none_or(|uid| *uid == claim.uid),
        None => {
            let given = volume.annotations.reserved_for.as_ref();
            let is_given =
                given.is_some_and(|to| to.released && &*to.claim.name == "c" && to.uid == claim.uid);
            let is_allowed = is_given || !world.verdicts.contains_key(&volume.name);
            !waits_for_pod(claim) && has_room(claim, volume) && is_allowed
        }
    }
}

/// Whether a volume without claimRef is free and fits the claim.
fn has_room(claim: &Claim, volume: &Volume) -> bool {
    let class = claim.class.as_deref().unwrap_or_default();
    let is_free = volume.phase == VolumePhase::Available && !volume.deleting;
    is_free && fits(claim, volume) && *volume.class == *class
}

/// Whether the class is the one of these worlds that waits for a pod.
fn waits_for_pod(claim: &Claim) -> bool {
    claim.class.as_deref() == Some("local")
}

/// Whether a reservation of the former choice, sent before, must fail.
fn is_fenced(world: &World, claim: &Claim, before: &Choice) -> bool {
    let Some(volume) = found(world.volume_proofs.get(&before.volume)) else { return true };
    let fence = format!("{} {}", claim.uid.0, claim.version.0);
    volume.uid != before.uid
        || volume.claim_ref.is_some()
        || volume.annotations.fence.as_deref() == Some(fence.as_str())
}
