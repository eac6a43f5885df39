//! The laws of these worlds. They share no code with the guard and with what derives the writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bindery_core::steer::steered_to;
use bindery_core::{Claim, ClaimKey, ClaimPhase, ClaimRef, Text, Uid, Volume, VolumePhase};
use bindery_kit::{InMemoryApi, ZONE};

use crate::world;

pub(crate) type Api = InMemoryApi<Facts>;
pub(crate) type Objects = bindery_kit::Objects<Facts>;

/// What a world keeps beside its objects.
#[derive(Default)]
pub(crate) struct Facts {
    uids: usize,
    /// The zone that each claim needs.
    pub(crate) zones: BTreeMap<Uid, Text>,
    /// Whether a user makes the change that is reported now.
    pub(crate) is_person: bool,
    /// Whether the scheduler makes the change that is reported now.
    pub(crate) is_scheduler: bool,
    /// Claims whose reservations or choices a user has touched.
    pub(crate) tampered: BTreeSet<ClaimKey>,
    /// Each volume as it was last reported.
    seen: BTreeMap<Text, Arc<Volume>>,
    /// Volumes that are reserved because a steering binder has written that.
    own: BTreeSet<Text>,
    /// Claims that upstream has bound by a reservation for a claim before them.
    by_former: BTreeSet<Uid>,
    pub(crate) counts: Counts,
    pub(crate) violations: Vec<String>,
}

/// What happened in a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Binds by Bindery's reservation for the claim.
    pub(crate) own: usize,
    /// Binds of steered claims by a person's reservation, or by one for a predecessor.
    pub(crate) others: usize,
    /// Binds of steered claims by the scheduler, to volumes with their label.
    pub(crate) labelled: usize,
    /// Reservations that Bindery has removed.
    pub(crate) released: usize,
    /// Volumes that were fenced.
    pub(crate) fenced: usize,
}

impl Facts {
    pub(crate) fn next_uid(&mut self, name: &str) -> Uid {
        self.uids += 1;
        Uid(format!("{name}-{}", self.uids).into())
    }
}

/// Whether a volume is reserved by name for a claim, and the annotation says that it is for that UID.
fn reserved_uid(volume: &Volume) -> Option<&Uid> {
    let claim_ref = volume.claim_ref.as_ref().filter(|claim_ref| claim_ref.uid.is_none())?;
    let reserved = volume.annotations.reserved_for.as_ref()?;
    (reserved.claim == claim_ref.claim_key()).then_some(&reserved.uid)
}

fn bound_uid(volume: &Volume) -> Option<&Uid> {
    volume.claim_ref.as_ref()?.uid.as_ref()
}

/// Checks a new state of a volume.
pub(crate) fn look_at(objects: &mut Objects, now: &Arc<Volume>) {
    let before = objects.extra.seen.insert(now.name.clone(), Arc::clone(now));
    let before = before.filter(|before| before.uid == now.uid);
    let mut violations = Vec::new();
    let reserved_before = before.as_deref().and_then(reserved_uid);
    if let Some(uid) = reserved_uid(now).filter(|uid| Some(*uid) != reserved_before)
        && !objects.extra.is_person
    {
        violations.extend(reserved_wrongly(objects, now, uid));
        objects.extra.own.insert(now.name.clone());
    }
    violations.extend(labelled_wrongly(objects, before.as_deref(), now));
    if let Some(before) = &before {
        let was_own = objects.extra.own.contains(&now.name) && reserved_before.is_some();
        violations.extend(freed_wrongly(objects, before, now, was_own));
        violations.extend(bound_wrongly(objects, before, now, was_own));
        if before.annotations.fence != now.annotations.fence {
            objects.extra.counts.fenced += 1;
        }
        let named = |volume: &Volume| volume.claim_ref.as_ref().map(ClaimRef::claim_key);
        if named(before) != named(now) && (objects.extra.is_person || now.claim_ref.is_none()) {
            objects.extra.own.remove(&now.name);
        }
    }
    objects.extra.violations.extend(violations);
}

/// A steering binder has reserved the volume.
fn reserved_wrongly(objects: &Objects, volume: &Volume, uid: &Uid) -> Vec<String> {
    let mut wrong = Vec::new();
    let zone = objects.extra.zones.get(uid);
    if volume.labels.get(ZONE) != zone {
        wrong.push(format!("{} is reserved for {uid:?} of zone {zone:?}", volume.name));
    }
    // Upstream may bind the claim by the reservation for a claim before it, while this write is on its way.
    let by_former = objects.extra.by_former.contains(uid);
    let holds = |other: &&Arc<Volume>| {
        let is_bound = bound_uid(other) == Some(uid) && !by_former;
        other.name != volume.name && (reserved_uid(other) == Some(uid) || is_bound)
    };
    let key = volume.claim_ref.as_ref().map(ClaimRef::claim_key);
    let is_tampered = key.is_some_and(|key| objects.extra.tampered.contains(&key));
    if let Some(other) = objects.volumes.values().find(holds)
        && !is_tampered
    {
        wrong.push(format!("{} is reserved for {uid:?} beside {}", volume.name, other.name));
    }
    wrong
}

/// A steering binder has labelled the volume for a claim.
fn labelled_wrongly(objects: &Objects, before: Option<&Volume>, now: &Volume) -> Vec<String> {
    let had = |key: &ClaimKey, uid: &Text| {
        before.is_some_and(|before| steered_to(before).any(|(claim, value)| claim == *key && value == uid))
    };
    let mut wrong = Vec::new();
    for (key, uid) in steered_to(now).filter(|(key, uid)| !had(key, uid)) {
        let zone = objects.extra.zones.get(&Uid(uid.clone()));
        if now.labels.get(ZONE) != zone || now.claim_ref.is_some() {
            wrong.push(format!("{} is labelled for claim {key} of zone {zone:?}", now.name));
        }
    }
    wrong
}

/// Bindery removes only its own reservations.
fn freed_wrongly(objects: &mut Objects, before: &Volume, now: &Volume, was_own: bool) -> Option<String> {
    let was_reserved = before.claim_ref.as_ref().is_some_and(|claim_ref| claim_ref.uid.is_none());
    if objects.extra.is_person || !was_reserved || now.claim_ref.is_some() {
        return None;
    }
    objects.extra.counts.released += 1;
    (!was_own).then(|| format!("{} was a person's reservation, and was removed", now.name))
}

/// Upstream binds a steered claim only to a volume that names it already.
fn bound_wrongly(objects: &mut Objects, before: &Volume, now: &Volume, was_own: bool) -> Option<String> {
    let uid = bound_uid(now).filter(|uid| bound_uid(before) != Some(*uid))?;
    let key = now.claim_ref.as_ref()?.claim_key();
    let claim = objects.claims.get(&key).filter(|claim| claim.uid == *uid && claim.steered)?;
    // Its own volume, whose claimRef a user has removed, it gets back.
    if claim.volume_name.as_ref() == Some(&now.name) {
        return None;
    }
    if objects.extra.is_scheduler && steered_to(before).any(|(labelled, _)| labelled == key) {
        objects.extra.counts.labelled += 1;
        return None;
    }
    if before.claim_ref.is_none() {
        return Some(format!("upstream takes the free volume {} for {}", now.name, claim.key));
    }
    if was_own && reserved_uid(before) == Some(uid) {
        objects.extra.counts.own += 1;
    } else {
        objects.extra.counts.others += 1;
        if was_own {
            objects.extra.by_former.insert(uid.clone());
        }
    }
    None
}

/// What is wrong once everything rests.
pub(crate) fn left(objects: &Objects) -> Vec<String> {
    let volumes = objects.volumes.values().filter_map(|volume| left_of_volume(objects, volume));
    volumes.chain(objects.claims.values().filter_map(|claim| left_of_claim(objects, claim))).collect()
}

fn left_of_volume(objects: &Objects, volume: &Volume) -> Option<String> {
    let name = &volume.name;
    let reserved = volume.claim_ref.as_ref().and_then(|by| objects.claims.get(&by.claim_key()));
    // A user has removed the UID from the volume of a bound claim.
    let is_bound = reserved.is_some_and(|claim| claim.volume_name.as_ref() == Some(name));
    if reserved_uid(volume).is_some() && objects.extra.own.contains(name) && !is_bound {
        return Some(format!("{name} is still reserved"));
    }
    let waits = |key: &ClaimKey, uid: &Text| {
        objects.claims.get(key).is_some_and(|claim| claim.uid.0 == *uid && claim.volume_name.is_none())
    };
    if let Some((key, _)) = steered_to(volume).find(|(key, uid)| !waits(key, uid)) {
        return Some(format!("{name} still has the label of claim {key}"));
    }
    let uid = bound_uid(volume)?;
    let key = volume.claim_ref.as_ref()?.claim_key();
    let claim = objects.claims.get(&key).filter(|claim| claim.uid == *uid);
    let is_bound_elsewhere =
        claim.is_some_and(|claim| claim.volume_name.as_ref().is_some_and(|other| other != name));
    if is_bound_elsewhere && !objects.extra.tampered.contains(&key) {
        return Some(format!("{name} carries the UID of claim {key}, which has another volume"));
    }
    let is_complete = claim.is_none_or(|claim| claim.status.phase == ClaimPhase::Bound);
    (volume.annotations.reserved_for.is_some() && is_complete && volume.phase != VolumePhase::Available)
        .then(|| format!("{name} still has the annotation of a reservation that was carried out"))
}

fn left_of_claim(objects: &Objects, claim: &Claim) -> Option<String> {
    let names =
        |volume: &Arc<Volume>| volume.claim_ref.as_ref().is_some_and(|by| by.claim_key() == claim.key);
    let waits = claim.steered && claim.volume_name.is_none();
    if !waits || objects.volumes.values().any(names) {
        return None;
    }
    // The scheduler may find no node for the pod of a class that waits. Then the volume has the label of the
    // claim, or of another one of the pod.
    let is_left = |volume: &&Arc<Volume>| {
        volume.claim_ref.is_none()
            && volume.phase == VolumePhase::Available
            && world::fits(objects, claim, volume)
            && steered_to(volume).next().is_none()
    };
    let free = objects.volumes.values().find(is_left)?;
    Some(format!("claim {} waits, and {} is free", claim.key, free.name))
}
