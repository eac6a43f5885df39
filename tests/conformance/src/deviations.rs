//! The list of deliberate differences from upstream.
//!
//! Each entry says which cases differ, how, and why. A case that an entry applies to must differ in that way,
//! and any other case must agree. An entry sees the world of a case, and upstream's result if it needs to
//! know how far upstream got. If an entry names no issue of upstream, none is known.

mod surplus;
mod values;

use bindery_core::{FINALIZER_EXTERNAL, FINALIZER_IN_TREE, Migration};
use serde_json::Value;

use crate::case::Case;
use crate::execution::End;
use crate::mock::migrations;

/// One deliberate difference.
pub(crate) struct Deviation {
    /// Short name, printed with the case.
    pub(crate) name: &'static str,
    /// The reason, with upstream's issue if there is one.
    pub(crate) reason: &'static str,
    /// Whether the case differs.
    pub(crate) applies: fn(&Case) -> bool,
    /// How the end of the case differs.
    pub(crate) effect: Effect,
}

/// How the end of a case differs.
pub(crate) enum Effect {
    /// The end is exactly upstream's with this change.
    Exact(fn(&mut Case)),
    /// This holds for the end. Consequences of the difference are not predicted.
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
    reason: "upstream looks for the finalizer of a volume that was never created, takes its absence \
             for a failed delete, and reports an orphan although the asset is deleted \
             (pv_controller.go, provisionClaimOperation: deleteVolumeOperation after five failed \
             creates)",
    applies: asset_is_deleted_after_failed_creates,
    effect: Effect::Exact(|case| {
        if let Some(events) = &mut case.events {
            events.retain(|event| event != CLEANUP_FAILED);
        }
    }),
};

const LIVE_CLAIM_KEEPS_ITS_VOLUME: Deviation = Deviation {
    name: "live-claim-keeps-its-volume",
    reason: "for a Released or Failed volume upstream trusts its cache that the claim is gone, and \
             reclaims the data of a claim that the cache has not seen yet; the guard reads the claim \
             live before a volume is reclaimed, and the volume waits until the cache has the claim \
             (pv_controller.go, syncVolume, reads live in other phases only; \
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
    reason: "upstream deletes any provisioned volume of policy Delete whose claim has another volume, \
             also one that it chose for that claim and that may hold data of an earlier claim; only a \
             volume whose name ends in the UID of the claim was provisioned for it and is surplus, \
             and any other volume is unbound (pv_controller.go, syncVolume)",
    applies: |case| surplus::wrongly_surplus(case).next().is_some(),
    effect: Effect::Holds(surplus::is_unbound_instead),
};

const SIZES_ARE_COMPARED_AS_THEY_ARE: Deviation = Deviation {
    name: "sizes-are-compared-as-they-are",
    reason: "for a claim that names its volume upstream rounds both sizes up to 64-bit integers \
             before it compares them, so 1500m fits into 1200m, and a size beyond 64 bits counts as \
             some number, often zero (pv_controller.go, checkVolumeSatisfyClaim; fixed for v1.38: \
             https://github.com/kubernetes/kubernetes/pull/141618)",
    applies: |case| values::misjudged(case).next().is_some(),
    effect: Effect::Holds(values::is_bound_by_size),
};

const NO_CAPACITY_IS_NEGATIVE: Deviation = Deviation {
    name: "no-capacity-is-negative",
    reason: "upstream publishes a negative pre-resize capacity, and the API server refuses this \
             status forever; Bindery ignores a capacity below zero, like one that does not parse \
             (pv_controller.go, updateClaimStatus)",
    applies: |case| values::made_negative(case).next().is_some(),
    effect: Effect::Exact(values::publish_volumes_capacity),
};

const UNREADABLE_IS_LEFT_ALONE: Deviation = Deviation {
    name: "unreadable-is-left-alone",
    reason: "upstream reads an unknown phase, mode or access mode as any other, and a size below zero \
             or from 2^64 as some number; Bindery cannot know what a later version of Kubernetes \
             means by such a value, so it does not write to the object, and an event says why",
    applies: values::meets_unreadable,
    effect: Effect::Holds(values::leaves_unreadable_alone),
};

/// Upstream's event about an asset that it takes for an orphan.
const CLEANUP_FAILED: &str = "Warning ProvisioningCleanupFailed";

/// How often a create is tried before the asset is deleted (`createProvisionedPVRetryCount`).
const CREATES_MAX: usize = 5;

fn asset_is_deleted_after_failed_creates(case: &Case) -> bool {
    let Some(plugin) = &case.plugin else { return false };
    let failed_creates =
        case.api_errors.iter().filter(|e| e.verb == "create" && e.resource == "persistentvolumes");
    let messages: Vec<_> = failed_creates.take(CREATES_MAX).collect();
    let all_failed = messages.len() == CREATES_MAX;
    let deletes = plugin.delete.as_ref().is_some_and(|outcomes| outcomes.iter().any(Option::is_none));
    // Many cases provision nothing, or end before the volume is created.
    let is_reported = case.events.iter().flatten().any(|event| event == CLEANUP_FAILED);
    plugin.provision.is_some() && all_failed && deletes && is_reported
}

/// Whether the case syncs a volume that upstream reclaims although its claim exists, unseen by the cache: the
/// claim has this volume or may still get it, or has another one and this one was not provisioned for it.
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

/// Whether a sync of the released volume reclaims it.
fn is_to_go(case: &Case, volume: &Value) -> bool {
    let policy = volume["spec"]["persistentVolumeReclaimPolicy"].as_str();
    let is_reclaimed = matches!(policy, Some("Delete" | "Recycle")) && !is_migrated(case, volume);
    is_released(volume) && is_reclaimed && !fails_before_it_is_decided(case, volume)
}

/// Whether a sync of the volume, which is not migrated, fails with its first write, that of the migration
/// annotation and the deletion finalizers.
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

/// Whether the case makes a request of this kind fail.
fn is_failed(case: &Case, verb: &str, resource: &str) -> bool {
    case.api_errors.iter().any(|error| error.verb == verb && error.resource == resource)
}

/// The object of that name, or null.
fn named<'a>(objects: &'a [Value], name: &Value) -> &'a Value {
    let found = objects.iter().find(|object| name.is_string() && object["metadata"]["name"] == *name);
    found.unwrap_or(&Value::Null)
}

/// Whether the volume is migrated once its annotations are current. Then an external provisioner reclaims it.
fn is_migrated(case: &Case, volume: &Value) -> bool {
    let annotations = &volume["metadata"]["annotations"];
    match annotations["pv.kubernetes.io/provisioned-by"].as_str() {
        Some(provisioner) => matches!(migrations(case).get(provisioner), Migration::On(_)),
        None => annotations["pv.kubernetes.io/migrated-to"].as_str().is_some_and(|driver| !driver.is_empty()),
    }
}
