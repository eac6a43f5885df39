//! Deviations about values of fields: sizes beyond 64 bits, and words that Kubernetes does not define.

use bindery_core::Quantity;
use serde_json::Value;

use super::{fails_before_it_is_decided, is_failed, is_released, is_to_go, named};
use crate::case::{Case, Objects};
use crate::compare;
use crate::execution::End;

/// Whether each misjudged pair is bound exactly if the volume is large enough.
pub(super) fn is_bound_by_size(case: &Case, end: &End) -> bool {
    misjudged(case).all(|pair| {
        let is_bound = refers_to(named(&end.objects.volumes, pair.volume), pair.claim);
        // A failed write binds nothing.
        is_bound == pair.fits || pair.fits && !case.api_errors.is_empty()
    })
}

/// Replaces a negative capacity that upstream published by the capacity of the volume.
pub(super) fn publish_volumes_capacity(case: &mut Case) {
    let names: Vec<_> = made_negative(case).map(|claim| claim["metadata"]["name"].clone()).collect();
    let Objects { volumes, claims } = &mut case.end;
    for claim in claims.iter_mut().filter(|claim| names.contains(&claim["metadata"]["name"])) {
        claim["status"]["capacity"] =
            named(volumes, &claim["spec"]["volumeName"])["spec"]["capacity"].clone();
    }
}

/// Whether upstream changes an object that cannot be read or one that depends on it, or the binder looks at
/// such an object and reports it.
pub(super) fn meets_unreadable(case: &Case) -> bool {
    let unreadable = unreadable(&case.initial);
    if is_empty(&unreadable) {
        return false;
    }
    let changes = |objects: &Objects| !is_empty(&compare::differing(objects, &case.end));
    let goes_on = is_settled(case) && changes(&referring(case, &unreadable));
    changes(&unreadable) || goes_on || looks_at(case, &unreadable)
}

/// Whether every object that cannot be read is unchanged.
pub(super) fn leaves_unreadable_alone(case: &Case, end: &End) -> bool {
    is_empty(&compare::differing(&unreadable(&case.initial), &end.objects))
}

/// A claim and the volume that it names, whose sizes upstream compares wrongly.
pub(super) struct Pair<'a> {
    claim: &'a Value,
    /// The volume's name.
    volume: &'a Value,
    /// Whether the volume is as large as the claim asks for.
    fits: bool,
}

/// Pairs of the case whose sizes upstream compares wrongly.
pub(super) fn misjudged(case: &Case) -> impl Iterator<Item = Pair<'_>> {
    let synced = case.call.strip_prefix("sync-claim ");
    let of_call = move |claim: &&Value| is_settled(case) || claim["metadata"]["name"].as_str() == synced;
    case.initial.claims.iter().filter(of_call).filter_map(|claim| {
        let name = &claim["spec"]["volumeName"];
        let volume = named(&case.initial.volumes, name);
        // In a case that settles, the volume may become free later.
        let later = if is_settled(case) { named(&case.end.volumes, name) } else { volume };
        let is_free =
            [volume, later].iter().any(|volume| volume.is_object() && volume["spec"]["claimRef"].is_null());
        let (offered, asked) = (capacity(volume)?, request(claim)?);
        let may_err = is_rounded(offered) || is_rounded(asked);
        if !(is_free && is_unbound(claim) && may_err && matches_but_for_size(volume, claim)) {
            return None;
        }
        let fits = offered >= asked;
        (upstream_binds(case, name, claim)? != fits).then_some(Pair { claim, volume: name, fits })
    })
}

/// Whether upstream found the volume large enough; `None` if it did not compare.
fn upstream_binds(case: &Case, volume: &Value, claim: &Value) -> Option<bool> {
    if refers_to(named(&case.end.volumes, volume), claim) {
        return Some(true);
    }
    match &case.events {
        Some(events) if events.iter().any(|event| event == "Warning VolumeMismatch") => Some(false),
        Some(_) => is_failed(case, "update", "persistentvolumes").then_some(true),
        None => Some(false),
    }
}

pub(super) fn is_settled(case: &Case) -> bool {
    case.call == "settle" || case.then_settle
}

fn is_unbound(claim: &Value) -> bool {
    claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"].is_null()
}

/// Whether upstream's comparison changes this size.
fn is_rounded(size: Quantity) -> bool {
    size.nanos > 0 || i64::try_from(size.whole).is_err()
}

/// Whether the volume matches in everything else that upstream's `checkVolumeSatisfyClaim` compares.
fn matches_but_for_size(volume: &Value, claim: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let class = |object: &Value| {
        let annotation = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
        text(if annotation.is_string() { annotation } else { &object["spec"]["storageClassName"] })
    };
    let mode = |object: &Value| text(&object["spec"]["volumeMode"]).replace("Filesystem", "");
    let attributes = |object: &Value| text(&object["spec"]["volumeAttributesClassName"]);
    let offered = items(&volume["spec"]["accessModes"]);
    let is_offered = |mode: &Value| offered.contains(mode);
    volume["metadata"]["deletionTimestamp"].is_null()
        && class(volume) == class(claim)
        && mode(volume) == mode(claim)
        && attributes(volume) == attributes(claim)
        && items(&claim["spec"]["accessModes"]).iter().all(is_offered)
}

/// Claims whose status has a negative capacity that upstream wrote.
pub(super) fn made_negative(case: &Case) -> impl Iterator<Item = &Value> {
    let is_negative = |claim: &Value| {
        let capacity = claim["status"]["capacity"]["storage"].as_str();
        capacity.is_some_and(|text| text.starts_with('-'))
    };
    let was = move |claim: &Value| is_negative(named(&case.initial.claims, &claim["metadata"]["name"]));
    case.end.claims.iter().filter(move |claim| is_negative(claim) && !was(claim))
}

/// Whether the case syncs an object that cannot be read, or one for which such an object is looked at.
fn looks_at(case: &Case, unreadable: &Objects) -> bool {
    let Objects { volumes, claims } = unreadable;
    let has = |objects: &[Value], name: &Value| named(objects, name).is_object();
    match case.call.split_once(' ') {
        Some(("sync-claim", name)) => {
            let claim = named(&case.initial.claims, &name.into());
            // A volume is reserved for the claim, so upstream tries to bind it.
            let refused = is_failed(case, "update", "persistentvolumes")
                && case.fails == Some(true)
                && case.events.as_ref().is_some_and(Vec::is_empty);
            let fails_to_bind = |volume: &Value| refused && refers_to(volume, claim);
            has(claims, &name.into())
                || has(volumes, &claim["spec"]["volumeName"])
                || is_unbound(claim)
                    && claim["spec"]["volumeName"].is_null()
                    && volumes.iter().any(fails_to_bind)
        }
        Some(("sync-volume", name)) => {
            let volume = named(&case.initial.volumes, &name.into());
            let is_referred_to = claims.iter().any(|claim| is_claim_of(volume, claim));
            has(volumes, &name.into()) || is_referred_to && looks_at_claim(case, volume)
        }
        _ => false,
    }
}

/// Whether a sync of the volume looks at its claim.
fn looks_at_claim(case: &Case, volume: &Value) -> bool {
    let claim_ref = &volume["spec"]["claimRef"];
    let is_unseen = case.uncached.iter().any(|name| claim_ref["name"] == name.as_str());
    if is_unseen && is_released(volume) {
        return is_to_go(case, volume);
    }
    let is_refused = is_unseen && is_failed(case, "get", "persistentvolumeclaims");
    !is_refused && !fails_before_it_is_decided(case, volume)
}

/// Objects that refer to an object that cannot be read, at the beginning or in the end, with the finalizers
/// that they have in the end: those are decided before the other object is looked at.
fn referring(case: &Case, unreadable: &Objects) -> Objects {
    let Objects { volumes, claims } = unreadable;
    let is_of_claim = |volume: &&Value| {
        let end = named(&case.end.volumes, &volume["metadata"]["name"]);
        claims.iter().any(|claim| is_claim_of(volume, claim) || refers_to(end, claim))
    };
    let is_of_volume = |claim: &&Value| named(volumes, &claim["spec"]["volumeName"]).is_object();
    let finalized = |volume: &Value| {
        let mut volume = volume.clone();
        let end = named(&case.end.volumes, &volume["metadata"]["name"]);
        volume["metadata"]["finalizers"] = end["metadata"]["finalizers"].clone();
        volume
    };
    Objects {
        volumes: case.initial.volumes.iter().filter(is_of_claim).map(finalized).collect(),
        claims: case.initial.claims.iter().filter(is_of_volume).cloned().collect(),
    }
}

/// The objects with a value that Bindery does not know.
pub(super) fn unreadable(objects: &Objects) -> Objects {
    let pick = |objects: &[Value], is_readable: fn(&Value) -> bool| {
        objects.iter().filter(|object| !is_readable(object)).cloned().collect()
    };
    Objects {
        volumes: pick(&objects.volumes, |volume| {
            is_readable(volume, &["", "Pending", "Available", "Bound", "Released", "Failed"])
                && is_size(&volume["spec"]["capacity"])
        }),
        claims: pick(&objects.claims, |claim| {
            is_readable(claim, &["", "Pending", "Bound", "Lost"])
                && is_size(&claim["spec"]["resources"]["requests"])
                && is_size(&claim["status"]["capacity"])
        }),
    }
}

fn is_readable(object: &Value, phases: &[&str]) -> bool {
    let is_one_of = |value: &Value, words: &[&str]| words.contains(&value.as_str().unwrap_or_default());
    let access = [&object["spec"]["accessModes"], &object["status"]["accessModes"]];
    let words = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];
    is_one_of(&object["status"]["phase"], phases)
        && (object["spec"]["volumeMode"].is_null()
            || is_one_of(&object["spec"]["volumeMode"], &["Filesystem", "Block"]))
        && access.into_iter().flat_map(items).all(|mode| is_one_of(mode, &words))
}

/// Whether a map of resources has no size, or one that Bindery can read.
fn is_size(resources: &Value) -> bool {
    resources["storage"].as_str().is_none_or(|text| Quantity::parse(text).is_ok())
}

fn capacity(volume: &Value) -> Option<Quantity> {
    Quantity::parse(volume["spec"]["capacity"]["storage"].as_str().unwrap_or("0")).ok()
}

fn request(claim: &Value) -> Option<Quantity> {
    Quantity::parse(claim["spec"]["resources"]["requests"]["storage"].as_str().unwrap_or("0")).ok()
}

/// Whether the volume belongs to the claim or to an earlier claim of that name. Upstream does not look up the
/// claim of a claimRef without UID.
fn is_claim_of(volume: &Value, claim: &Value) -> bool {
    let reference = &volume["spec"]["claimRef"];
    reference["uid"].is_string()
        && ["namespace", "name"].iter().all(|field| reference[field] == claim["metadata"][field])
}

fn refers_to(volume: &Value, claim: &Value) -> bool {
    let reference = &volume["spec"]["claimRef"];
    reference.is_object() && reference["uid"] == claim["metadata"]["uid"]
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn is_empty(objects: &Objects) -> bool {
    objects.volumes.is_empty() && objects.claims.is_empty()
}
