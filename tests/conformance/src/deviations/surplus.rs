//! Volumes that upstream takes for surplus because they were provisioned, although for another claim.

use serde_json::Value;

use super::values::{is_settled, unreadable};
use super::{fails_before_it_is_decided, is_failed, is_released, named};
use crate::case::{Case, Objects};
use crate::compare;
use crate::execution::End;

/// Volumes that upstream releases or deletes because their claim has another one, although they were not
/// provisioned for it.
pub(super) fn wrongly_surplus(case: &Case) -> impl Iterator<Item = &Value> {
    let is_wronged = |volume: &&Value| {
        is_deleted_by_policy(volume)
            && if is_settled(case) {
                is_reclaimed_in_the_end(case, volume)
            } else {
                is_disowned(case, volume)
            }
    };
    case.initial.volumes.iter().filter(is_wronged)
}

/// Whether the call unbinds each of these volumes. Where the case settles, whether each exists in the end and
/// is not reserved for a claim that has another volume; the next claim is not predicted.
pub(super) fn is_unbound_instead(case: &Case, end: &End) -> bool {
    wrongly_surplus(case).all(|volume| {
        let now = named(&end.objects.volumes, &volume["metadata"]["name"]);
        if !is_settled(case) {
            let is_as_it_was = compare::differing(&only(volume), &end.objects).volumes.is_empty();
            // The case makes its one write fail.
            return is_failed(case, "update", "persistentvolumes") && is_as_it_was
                || is_offered(now, volume) && end.log.events.is_empty();
        }
        now.is_object() && elsewhere(&end.objects.claims, now).is_none()
    })
}

/// Whether a volume is unbound as a binder does it: it clears its own choice, and keeps a reservation of a
/// user.
fn is_offered(now: &Value, before: &Value) -> bool {
    let by_binder = before["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"].is_string();
    let reference = &now["spec"]["claimRef"];
    let is_cleared = reference["uid"].as_str().is_none_or(str::is_empty) && reference.is_null() == by_binder;
    now["status"]["phase"] == "Available" && is_cleared
}

/// Whether the case syncs this volume, and upstream finds that its claim has another volume.
fn is_disowned(case: &Case, volume: &Value) -> bool {
    let is_synced = case.call.strip_prefix("sync-volume ") == volume["metadata"]["name"].as_str();
    let Some(claim) = elsewhere(&case.initial.claims, volume).filter(|_| is_synced) else { return false };
    let is_seen = claim["metadata"]["namespace"] == volume["spec"]["claimRef"]["namespace"]
        && !case.uncached.iter().any(|unseen| claim["metadata"]["name"] == unseen.as_str());
    let is_found = is_seen || !is_released(volume) && !is_failed(case, "get", "persistentvolumeclaims");
    // If the first write fails, nothing changes.
    let fails_at_once = !is_released(volume) && is_failed(case, "update", "persistentvolumes");
    is_found
        && !fails_at_once
        && !fails_before_it_is_decided(case, volume)
        && is_readable(case, volume)
        && is_readable(case, claim)
}

fn is_reclaimed_in_the_end(case: &Case, volume: &Value) -> bool {
    let end = named(&case.end.volumes, &volume["metadata"]["name"]);
    let last = if end.is_object() { end } else { volume };
    let is_reclaimed = !end.is_object() || is_released(end);
    let claim = elsewhere(&case.end.claims, last);
    is_reclaimed && is_readable(case, volume) && claim.is_some_and(|claim| is_readable(case, claim))
}

/// The claim whose UID the volume carries, if it has another volume and this one was not provisioned for it.
fn elsewhere<'a>(claims: &'a [Value], volume: &Value) -> Option<&'a Value> {
    let claim = named(claims, &volume["spec"]["claimRef"]["name"]);
    let uid = volume["spec"]["claimRef"]["uid"].as_str().filter(|uid| claim["metadata"]["uid"] == *uid)?;
    let is_elsewhere = claim["spec"]["volumeName"]
        .as_str()
        .is_some_and(|used| !used.is_empty() && volume["metadata"]["name"] != used);
    (is_elsewhere && !is_made_for(volume, uid)).then_some(claim)
}

/// Whether a provisioner made the volume for the claim of this UID, by the volume's name.
pub(super) fn is_made_for(volume: &Value, uid: &str) -> bool {
    volume["metadata"]["name"].as_str().is_some_and(|name| name.ends_with(uid))
        && is_deleted_by_policy(volume)
}

fn is_deleted_by_policy(volume: &Value) -> bool {
    volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"].is_string()
        && volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
}

fn is_readable(case: &Case, object: &Value) -> bool {
    let Objects { volumes, claims } = unreadable(&case.initial);
    let is_it = |other: &Value| other["metadata"]["uid"] == object["metadata"]["uid"];
    !volumes.iter().chain(&claims).any(is_it)
}

fn only(volume: &Value) -> Objects {
    Objects { volumes: vec![volume.clone()], claims: Vec::new() }
}
