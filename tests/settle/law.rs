//! What no write may do: G1 to G5 and G9 of the design, said of the objects before and after it, as the API
//! server has them. Nothing here is shared with the guard, which judges decisions before they are carried
//! out.
//!
//! A write names the version of its own object, so that object is as the binder saw it. Of other objects the
//! binder may have seen an earlier state; in a calm world it has not, and the law is stricter.

mod claims;
mod meet;
mod volumes;

use std::sync::Arc;

use bindery_controller::Write;
use bindery_core::{Claim, ClaimKey, ClaimPhase, ClaimTarget, ReclaimPolicy, Text, Uid, Volume, VolumePhase};

use crate::server::{Change, Inner};

pub(crate) use meet::may_meet;

/// Holds a write against the law, before it is carried out.
///
/// # Errors
///
/// It breaks the law: how.
pub(crate) fn check(server: &Inner, write: &Write<Volume>, change: &Change) -> Result<(), String> {
    pairs_stay(server, change)?;
    match change {
        Change::Volume { before: Some(before), after } => {
            volumes::Changed { server, write, before, after }.check()
        }
        Change::Volume { before: None, after } => volumes::created(server, write, after),
        Change::Deletion { before } => volumes::deleted(server, before),
        Change::Claim { before, after } => claims::Changed { server, write, before, after }.check(),
    }
}

/// Whether the plugin may be asked to delete, or to scrub, the asset of a volume (G4): its claim is gone,
/// or has another volume and this one is surplus or scrubbed.
pub(crate) fn may_destroy(server: &Inner, volume: &Volume) -> Result<(), String> {
    let fate = fate(server, volume).map_err(|why| format!("destroys data: {why}"))?;
    let may = fate.is_gone || is_surplus(volume) || volume.policy == ReclaimPolicy::Recycle;
    check_that(may, "destroys data: the volume was not provisioned for its claim, which has another one")
}

/// G1: every complete pair stays one, and is not said to be anything else. What a volume's or a claim's phase
/// says of a pair that others have just completed may come from before.
fn pairs_stay(server: &Inner, change: &Change) -> Result<(), String> {
    for claim in server.claims.values() {
        let Some(volume) = claim.volume_name.as_ref().and_then(|name| server.volumes.get(name)) else {
            continue;
        };
        if !is_pair(claim, volume) {
            continue;
        }
        let stays = match change {
            Change::Volume { before: Some(before), after } if before.name == volume.name => {
                let denies = match after.phase {
                    VolumePhase::Available | VolumePhase::Released => true,
                    VolumePhase::Failed => server.calm,
                    VolumePhase::Bound | VolumePhase::Pending | VolumePhase::Unset => false,
                };
                is_pair(claim, after) && (after.phase == before.phase || !denies)
            }
            Change::Claim { before, after } if before.uid == claim.uid => {
                let denies = server.calm && after.status.phase != ClaimPhase::Bound;
                is_pair(after, volume) && (after.status.phase == before.status.phase || !denies)
            }
            Change::Deletion { before } => before.name != volume.name,
            Change::Volume { .. } | Change::Claim { .. } => true,
        };
        check_that(stays, "G1: breaks a complete pair")?;
    }
    Ok(())
}

/// Whether both know of each other: bind-completed, volumeName, and the UID in claimRef.
pub(crate) fn is_pair(claim: &Claim, volume: &Volume) -> bool {
    claim.annotations.bind_completed
        && claim.volume_name.as_ref() == Some(&volume.name)
        && uid_in(volume) == Some(&claim.uid)
}

/// What became of the claim that a volume's claimRef carries. Both may hold.
struct Fate {
    /// There is none of that UID.
    is_gone: bool,
    /// It has, or had, another volume: a volumeName stays.
    is_elsewhere: bool,
}

/// G4: what became of the volume's claim, which must not need the volume. A claim that is gone stays gone,
/// and a volumeName stays, so what a live read showed is still so when the write comes.
fn fate(server: &Inner, volume: &Volume) -> Result<Fate, String> {
    let uid = uid_in(volume).ok_or("G4: the volume carries no claim's UID")?;
    let key = claim_ref_key(volume);
    let lives = key.and_then(|key| server.claims.get(&key)).is_some_and(|claim| claim.uid == *uid);
    let mut past = server.past_claims.iter().filter(|claim| claim.uid == *uid);
    let is_elsewhere = past.any(|claim| claim.volume_name.as_ref().is_some_and(|name| *name != volume.name));
    check_that(!lives || is_elsewhere, "G4: the claim of the volume lives and has no other volume")?;
    Ok(Fate { is_gone: !lives, is_elsewhere })
}

/// Whether the volume goes when its claim has another one: it was provisioned for that claim, as its name
/// tells.
fn is_surplus(volume: &Volume) -> bool {
    let is_made_for = |uid: &Uid| *volume.name == *format!("pvc-{uid}");
    volume.annotations.provisioned_by.is_some()
        && volume.policy == ReclaimPolicy::Delete
        && uid_in(volume).is_some_and(is_made_for)
}

/// G5: the claim of that UID in that version, which there must have been.
fn claim_then<'a>(server: &'a Inner, target: &ClaimTarget) -> Result<&'a Arc<Claim>, String> {
    let is_it = |claim: &&Arc<Claim>| {
        (&claim.uid, &claim.version, &claim.key) == (&target.uid, &target.version, &target.key)
    };
    server.past_claims.iter().find(is_it).ok_or("G5: there never was such a version of the claim".to_owned())
}

/// The states of a claim that the binder may have seen: of a calm world that of now.
fn claim_states<'a>(server: &'a Inner, uid: &'a Uid) -> impl Iterator<Item = &'a Arc<Claim>> {
    let is_now =
        |claim: &Arc<Claim>| server.claims.get(&claim.key).is_some_and(|now| Arc::ptr_eq(now, claim));
    server.past_claims.iter().filter(move |claim| claim.uid == *uid && (!server.calm || is_now(claim)))
}

/// The states of a volume that the binder may have seen: of a calm world that of now.
fn volume_states<'a>(server: &'a Inner, name: &'a Text) -> impl Iterator<Item = &'a Arc<Volume>> {
    let is_now =
        |volume: &Arc<Volume>| server.volumes.get(&volume.name).is_some_and(|now| Arc::ptr_eq(now, volume));
    server.past_volumes.iter().filter(move |volume| volume.name == *name && (!server.calm || is_now(volume)))
}

/// The claim that a volume's claimRef names.
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
