//! Where Bindery deliberately does better than upstream: the one list of them.
//!
//! Each entry says which cases differ, how, and why. A case that an entry applies to must differ in that way,
//! any other must agree. An entry looks at the world of a case, and at what upstream made of it where that
//! tells how far upstream got. Where no issue of upstream's is named, none is known.

mod surplus;
mod values;

use bindery_core::{FINALIZER_EXTERNAL, FINALIZER_IN_TREE, Migration};
use serde_json::Value;

use crate::case::Case;
use crate::mock::migrations;
use crate::world::End;

/// One deliberate difference.
pub(crate) struct Deviation {
    /// Short name, printed with the case.
    pub(crate) name: &'static str,
    /// Why, with upstream's issue where there is one.
    pub(crate) reason: &'static str,
    /// Whether it applies to the case.
    pub(crate) applies: fn(&Case) -> bool,
    /// What it makes of the end of the case.
    pub(crate) effect: Effect,
}

/// What a deliberate difference makes of the end of a case.
pub(crate) enum Effect {
    /// Exactly this end.
    Exact(fn(&mut Case)),
    /// An end for which this holds. Who gets what follows from the difference is not foreseen.
    Holds(fn(&Case, &End) -> bool),
}

/// Every deliberate difference.
pub(crate) const DEVIATIONS: &[Deviation] = &[
    CLEAN_ASSET_IS_NO_ORPHAN,
    LIVE_CLAIM_KEEPS_ITS_VOLUME,
    CHOSEN_VOLUME_IS_KEPT,
    SIZES_ARE_COMPARED_AS_THEY_ARE,
    NO_CAPACITY_IS_NEGATIVE,
    UNREADABLE_IS_LEFT_ALONE,
];

const CLEAN_ASSET_IS_NO_ORPHAN: Deviation = Deviation {
    name: "clean-asset-is-no-orphan",
    reason: "upstream looks for the finalizer of a volume that was never created, takes its absence for a \
             failed delete, and reports an orphan although the asset is gone \
             (pv_controller.go, provisionClaimOperation: deleteVolumeOperation after five failed creates)",
    applies: asset_is_deleted_after_failed_creates,
    effect: Effect::Exact(|case| {
        if let Some(events) = &mut case.events {
            events.retain(|event| event != CLEANUP_FAILED);
        }
    }),
};

const LIVE_CLAIM_KEEPS_ITS_VOLUME: Deviation = Deviation {
    name: "live-claim-keeps-its-volume",
    reason: "for a volume that is Released or Failed upstream trusts its cache that the claim is gone, and reclaims \
             the data of a claim that the cache has not seen yet; the guard reads the claim live before anything is \
             reclaimed, and the volume waits until the cache has it too (pv_controller.go, syncVolume: the double check is made for other phases only; \
             https://github.com/kubernetes/kubernetes/issues/46674)",
    applies: reclaims_from_an_unseen_claim,
    effect: Effect::Exact(|case| {
        case.end = case.initial.clone();
        case.events = Some(Vec::new());
        case.fails = Some(true);
    }),
};

const CHOSEN_VOLUME_IS_KEPT: Deviation = Deviation {
    name: "chosen-volume-is-kept",
    reason: "upstream deletes any provisioned volume of policy Delete whose claim has another one, also one that \
             it chose itself for that claim and that may hold data of an earlier claim; only a volume whose name \
             ends in the claim's UID, as provisioners name them, was made for that claim and is surplus, any \
             other one is unbound (pv_controller.go, syncVolume)",
    applies: |case| surplus::wrongly_surplus(case).next().is_some(),
    effect: Effect::Holds(surplus::is_unbound_instead),
};

const SIZES_ARE_COMPARED_AS_THEY_ARE: Deviation = Deviation {
    name: "sizes-are-compared-as-they-are",
    reason: "for a claim that names its volume upstream rounds both sizes up to 64-bit integers before it compares them, so \
             that 1500m fits into 1200m, and what is beyond 64 bits counts as any number, often zero \
             (pv_controller.go, checkVolumeSatisfyClaim; fixed for v1.38: https://github.com/kubernetes/kubernetes/pull/141618)",
    applies: |case| values::misjudged(case).next().is_some(),
    effect: Effect::Holds(values::is_bound_by_size),
};

const NO_CAPACITY_IS_NEGATIVE: Deviation = Deviation {
    name: "no-capacity-is-negative",
    reason: "upstream publishes a negative pre-resize capacity, and the API server refuses such a status for good; a \
             capacity below zero is none, like one that does not parse (pv_controller.go, updateClaimStatus)",
    applies: |case| values::made_negative(case).next().is_some(),
    effect: Effect::Exact(values::publish_volumes_capacity),
};

const UNREADABLE_IS_LEFT_ALONE: Deviation = Deviation {
    name: "unreadable-is-left-alone",
    reason: "upstream takes a phase, mode or access mode that it does not know for any other, and a size below zero or from \
             2^64 for some number; what a version of Kubernetes that Bindery does not know means by it cannot be \
             guessed, so nothing is written to such an object, and an event says why",
    applies: values::meets_unreadable,
    effect: Effect::Holds(values::leaves_unreadable_alone),
};

/// What upstream reports of an asset that it takes for an orphan.
const CLEANUP_FAILED: &str = "Warning ProvisioningCleanupFailed";

/// Tries of a create before the asset is given up (`createProvisionedPVRetryCount`).
const CREATES_MAX: usize = 5;

fn asset_is_deleted_after_failed_creates(case: &Case) -> bool {
    let Some(plugin) = &case.plugin else { return false };
    let failed_creates =
        case.api_errors.iter().filter(|e| e.verb == "create" && e.resource == "persistentvolumes");
    let messages: Vec<_> = failed_creates.take(CREATES_MAX).collect();
    let all_failed = messages.len() == CREATES_MAX;
    let deletes = plugin.delete.as_ref().is_some_and(|outcomes| outcomes.iter().any(Option::is_none));
    // Many a case provisions nothing, or does not get as far as to create the volume.
    let is_reported = case.events.iter().flatten().any(|event| event == CLEANUP_FAILED);
    plugin.provision.is_some() && all_failed && deletes && is_reported
}

/// Whether the one volume that the case syncs is to be reclaimed while its claim, which the cache has not
/// seen, is on the API server and has it or may yet have it, or has another one and this one was not made for
/// it.
fn reclaims_from_an_unseen_claim(case: &Case) -> bool {
    let Some(("sync-volume", name)) = case.call.split_once(' ') else { return false };
    let volume = named(&case.initial.volumes, &name.into());
    let claim_ref = &volume["spec"]["claimRef"];
    let is_unseen = |claim: &&Value| {
        let unseen = case.uncached.iter().any(|missing| claim["metadata"]["name"] == missing.as_str());
        let same =
            ["name", "namespace", "uid"].iter().all(|field| claim["metadata"][field] == claim_ref[field]);
        unseen && same && claim_ref["uid"].is_string()
    };
    let Some(claim) = case.initial.claims.iter().find(is_unseen) else { return false };
    let uses_it = claim["spec"]["volumeName"].as_str().is_none_or(|used| used.is_empty() || used == name);
    let is_chosen = volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        && !claim["metadata"]["uid"].as_str().is_some_and(|uid| surplus::is_made_for(volume, uid));
    (uses_it || is_chosen) && is_to_go(case, volume)
}

/// Whether a sync of the volume, which was released before, reclaims it.
fn is_to_go(case: &Case, volume: &Value) -> bool {
    let policy = volume["spec"]["persistentVolumeReclaimPolicy"].as_str();
    let is_reclaimed = matches!(policy, Some("Delete" | "Recycle")) && !is_migrated(case, volume);
    is_released(volume) && is_reclaimed && !fails_before_it_is_decided(case, volume)
}

/// Whether a sync of the volume, which does not count as migrated, ends with its first write, the one of the
/// migration's annotation and of the deletion finalizers: it is due, and fails.
fn fails_before_it_is_decided(case: &Case, volume: &Value) -> bool {
    let annotations = &volume["metadata"]["annotations"];
    let Some(provisioner) = annotations["pv.kubernetes.io/provisioned-by"].as_str() else { return false };
    let finalizers = volume["metadata"]["finalizers"].as_array();
    let has = |finalizer| finalizers.is_some_and(|finalizers| finalizers.iter().any(|has| has == finalizer));
    let wants_finalizer = volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete";
    let misses_finalizer = has(FINALIZER_IN_TREE) != wants_finalizer || has(FINALIZER_EXTERNAL);
    let migrated_to = annotations["pv.kubernetes.io/migrated-to"].as_str();
    let is_due = migrated_to.is_some_and(|driver| !driver.is_empty())
        || provisioner.starts_with("kubernetes.io/") && misses_finalizer;
    is_due && is_failed(case, "update", "persistentvolumes")
}

fn is_released(volume: &Value) -> bool {
    matches!(volume["status"]["phase"].as_str(), Some("Released" | "Failed"))
}

/// Whether a request of this kind is made to fail.
fn is_failed(case: &Case, verb: &str, resource: &str) -> bool {
    case.api_errors.iter().any(|error| error.verb == verb && error.resource == resource)
}

/// The object of that name, or null.
fn named<'a>(objects: &'a [Value], name: &Value) -> &'a Value {
    let found = objects.iter().find(|object| name.is_string() && object["metadata"]["name"] == *name);
    found.unwrap_or(&Value::Null)
}

/// Whether the volume counts as migrated once its annotations are brought up to date: then an external
/// provisioner reclaims it.
fn is_migrated(case: &Case, volume: &Value) -> bool {
    let annotations = &volume["metadata"]["annotations"];
    match annotations["pv.kubernetes.io/provisioned-by"].as_str() {
        Some(provisioner) => matches!(migrations(case).get(provisioner), Migration::On(_)),
        None => annotations["pv.kubernetes.io/migrated-to"].as_str().is_some_and(|driver| !driver.is_empty()),
    }
}
