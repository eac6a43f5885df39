//! What no write may do: the guarantees G1 to G5 and G9 to G11 of ARCHITECTURE.md, as rules about the objects
//! of the API server before and after the write. This shares no code with the guard, which checks decisions
//! before they are carried out.
//!
//! A write names the version of its own object, so that object is as the binder saw it. The binder may have
//! seen an earlier state of other objects, but not in a calm world, where the law is stricter.

mod claims;
mod meet;
mod policed;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use bindery_controller::Write;
use bindery_core::{
    Action, Claim, ClaimKey, ClaimPhase, ClaimTarget, Class, ReclaimPolicy, Text, Uid, Volume, VolumePhase,
};
use bindery_kit::{Change, InMemoryApi, Objects};
use tokio::time::Instant;

pub(crate) use meet::may_meet;
pub(crate) use policed::{is_allowed, is_crowded_out, is_held, left_exposed};

use crate::policies::Policies;

/// The API server of a world.
pub(crate) type Api = InMemoryApi<Facts>;
/// Its objects.
pub(crate) type State = Objects<Facts>;

/// Further state that the law needs.
pub(crate) struct Facts {
    pub(crate) classes: BTreeMap<Text, Class>,
    /// Whether only the binder acts and its view is true.
    pub(crate) calm: bool,
    pub(crate) assets: Assets,
    pub(crate) policies: Policies,
    /// The labels of namespaces, as they were and are, in order.
    pub(crate) namespaces: Vec<(Text, Arc<BTreeMap<Text, Text>>)>,
    /// The values of [`crate::world::TIER`] among the parameters of classes, as they were and are, in order.
    pub(crate) class_tiers: Vec<(Text, Option<Text>)>,
    /// How the law was broken.
    pub(crate) violations: Vec<String>,
}

/// What the plugin has done.
#[derive(Debug, Default)]
pub(crate) struct Assets {
    /// UIDs of claims that have an asset.
    pub(crate) provisioned: BTreeSet<Uid>,
    /// UIDs of volumes whose asset was deleted.
    pub(crate) deleted: BTreeSet<Uid>,
    /// UIDs of volumes whose asset was scrubbed, until they are offered again.
    pub(crate) recycled: BTreeSet<Uid>,
}

/// Checks a write before it is carried out.
pub(crate) fn inspect(state: &mut State, write: &Write<Volume>, change: &Change) {
    if let Err(violation) = check(state, write, change) {
        state.extra.violations.push(format!("{violation}: {write:?}"));
    }
    if let Change::Volume { after, .. } = change
        && uid_in(after).is_none()
    {
        state.extra.assets.recycled.remove(&after.uid);
    }
}

/// How many writes of the binder were carried out so far.
pub(crate) fn changes(state: &State) -> usize {
    state.writes.iter().filter(|(_, result)| result.is_ok()).count()
}

/// How many reclaim policies the binder has set.
pub(crate) fn policies_set(state: &State) -> usize {
    let is_set = |write: &Write<Volume>| matches!(write.action, Action::SetReclaimPolicy { .. });
    state.writes.iter().filter(|(write, result)| result.is_ok() && is_set(write)).count()
}

/// The writes that the binder asked for, and their results.
pub(crate) fn requests(state: &State) -> String {
    state.writes.iter().fold(String::new(), |mut text, (write, result)| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {result:?} {write:?}");
        text
    })
}

fn check(state: &State, write: &Write<Volume>, change: &Change) -> Result<(), String> {
    pairs_stay(state, change)?;
    match change {
        Change::Volume { before: Some(before), after } => {
            volumes::Changed { state, write, before, after }.check()
        }
        Change::Volume { before: None, after } => volumes::created(state, write, after),
        Change::Deletion { before } => volumes::deleted(state, before),
        Change::Claim { before, after } => claims::Changed { state, write, before, after }.check(),
    }
}

/// Whether the plugin may delete or scrub the asset of a volume (G4): its claim is gone, or has another
/// volume and this one is surplus or recycled.
pub(crate) fn may_destroy(state: &State, volume: &Volume) -> Result<(), String> {
    let fate = fate(state, volume).map_err(|why| format!("destroys data: {why}"))?;
    policed::may_be_exposed(state, volume, "destroys")?;
    let may = fate.is_gone || is_surplus(volume) || volume.policy == ReclaimPolicy::Recycle;
    check_that(may, "destroys data: the volume was not provisioned for its claim, which has another one")
}

/// G1: a complete pair stays complete, and no phase contradicts it. In a rough world others may have
/// completed the pair since the binder decided the phase.
fn pairs_stay(state: &State, change: &Change) -> Result<(), String> {
    for claim in state.claims.values() {
        let Some(volume) = claim.volume_name.as_ref().and_then(|name| state.volumes.get(name)) else {
            continue;
        };
        if !is_pair(claim, volume) {
            continue;
        }
        let stays = match change {
            Change::Volume { before: Some(before), after } if before.name == volume.name => {
                let denies = match after.phase {
                    VolumePhase::Available | VolumePhase::Released => true,
                    VolumePhase::Failed => state.extra.calm,
                    VolumePhase::Bound | VolumePhase::Pending | VolumePhase::Unset => false,
                };
                is_pair(claim, after) && (after.phase == before.phase || !denies)
            }
            Change::Claim { before, after } if before.uid == claim.uid => {
                let denies = state.extra.calm && after.status.phase != ClaimPhase::Bound;
                is_pair(after, volume) && (after.status.phase == before.status.phase || !denies)
            }
            Change::Deletion { before } => before.name != volume.name,
            Change::Volume { .. } | Change::Claim { .. } => true,
        };
        check_that(stays, "G1: breaks a complete pair")?;
    }
    Ok(())
}

/// Whether claim and volume name each other: bind-completed, volumeName, and the UID in claimRef.
pub(crate) fn is_pair(claim: &Claim, volume: &Volume) -> bool {
    claim.annotations.bind_completed
        && claim.volume_name.as_ref() == Some(&volume.name)
        && uid_in(volume) == Some(&claim.uid)
}

/// The fate of the claim in a volume's claimRef. Both may hold.
struct Fate {
    /// No claim has that UID.
    is_gone: bool,
    /// It has, or had, another volume: a volumeName never changes.
    is_elsewhere: bool,
}

/// G4: the fate of the volume's claim, which must not need the volume. A claim that is gone stays gone, and a
/// volumeName never changes, so the result of a live read still holds when the write arrives.
fn fate(state: &State, volume: &Volume) -> Result<Fate, String> {
    let uid = uid_in(volume).ok_or("G4: the volume carries no claim's UID")?;
    let key = claim_ref_key(volume);
    let lives = key.and_then(|key| state.claims.get(&key)).is_some_and(|claim| claim.uid == *uid);
    let mut past = state.past_claims.iter().filter(|claim| claim.uid == *uid);
    let is_elsewhere = past.any(|claim| claim.volume_name.as_ref().is_some_and(|name| *name != volume.name));
    check_that(!lives || is_elsewhere, "G4: the claim of the volume lives and has no other volume")?;
    Ok(Fate { is_gone: !lives, is_elsewhere })
}

/// Whether the volume was provisioned for its claim, by its name: it is deleted when the claim has another
/// one.
fn is_surplus(volume: &Volume) -> bool {
    let is_made_for = |uid: &Uid| *volume.name == *format!("pvc-{uid}");
    volume.annotations.provisioned_by.is_some()
        && volume.policy == ReclaimPolicy::Delete
        && uid_in(volume).is_some_and(is_made_for)
}

/// G5: the claim of that UID in that version, which must have existed.
fn claim_then<'a>(state: &'a State, target: &ClaimTarget) -> Result<&'a Arc<Claim>, String> {
    let is_it = |claim: &&Arc<Claim>| {
        (&claim.uid, &claim.version, &claim.key) == (&target.uid, &target.version, &target.key)
    };
    state.past_claims.iter().find(is_it).ok_or("G5: there never was such a version of the claim".to_owned())
}

/// The states of a claim that the binder may have seen: in a calm world, the current one.
fn claim_states<'a>(state: &'a State, uid: &'a Uid) -> impl Iterator<Item = &'a Arc<Claim>> {
    let is_now = |claim: &Arc<Claim>| state.claims.get(&claim.key).is_some_and(|now| Arc::ptr_eq(now, claim));
    state.past_claims.iter().filter(move |claim| claim.uid == *uid && (!state.extra.calm || is_now(claim)))
}

/// The states of a volume that the binder may have seen: in a calm world, the current one.
fn volume_states<'a>(state: &'a State, name: &'a Text) -> impl Iterator<Item = &'a Arc<Volume>> {
    let is_now =
        |volume: &Arc<Volume>| state.volumes.get(&volume.name).is_some_and(|now| Arc::ptr_eq(now, volume));
    state
        .past_volumes
        .iter()
        .filter(move |volume| volume.name == *name && (!state.extra.calm || is_now(volume)))
}

/// The states of a volume that the binder may have learnt by a live read or an answer for the decision whose
/// write arrives now: the current one, and in a rough world those that ended at this instant. No time of the
/// paused clock passes between a read and the write that rests on it.
fn states_now<'a>(state: &'a State, name: &'a Text) -> impl Iterator<Item = Option<&'a Arc<Volume>>> {
    let is_now = |at: Instant| !state.extra.calm && at == Instant::now();
    let ended = state.ended.iter().rev().take_while(move |(at, ..)| is_now(*at));
    let ended = ended.filter(move |(_, of, _)| of == name).map(|(.., volume)| volume.as_ref());
    std::iter::once(state.volumes.get(name)).chain(ended)
}

/// The key of the claim that a volume's claimRef names.
fn claim_ref_key(volume: &Volume) -> Option<ClaimKey> {
    let claim_ref = volume.claim_ref.as_ref()?;
    Some(ClaimKey::new(claim_ref.namespace.clone(), claim_ref.name.clone()))
}

/// The UID in a volume's claimRef.
pub(crate) fn uid_in(volume: &Volume) -> Option<&Uid> {
    volume.claim_ref.as_ref()?.uid.as_ref()
}

fn check_that(holds: bool, broken: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken.to_owned()) }
}
