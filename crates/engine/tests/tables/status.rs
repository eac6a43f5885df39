//! `updateClaimStatus`: which fields of a claim's status change, and when.

use bindery_core::{AccessMode, Claim, ClaimPhase, Volume};

use crate::cluster::ListCluster;
use crate::{bound_claim, bound_to, check_claim, claim, gi, volume};

/// The volume of [`bound_claim`] `c`.
fn its_volume(change: impl FnOnce(&mut Volume)) -> Volume {
    volume("v", |v| {
        v.claim_ref = bound_to("c");
        v.phase = bindery_core::VolumePhase::Bound;
        change(v);
    })
}

/// A claim that was bound to `v`, in another phase.
fn in_phase(phase: ClaimPhase, change: impl FnOnce(&mut Claim)) -> Claim {
    let mut claim = bound_claim("c", "v");
    claim.status.phase = phase;
    change(&mut claim);
    claim
}

#[track_caller]
fn check(volume: Volume, claim: &Claim, expected: Option<&str>) {
    let expected: Vec<&str> = expected.into_iter().chain(["done"]).collect();
    check_claim(&mut ListCluster::new([volume], []), claim, &expected);
}

#[test]
fn access_modes_follow_the_volume_in_every_phase() {
    let wider = || its_volume(|v| v.access_modes = vec![AccessMode::ReadWriteOnce, AccessMode::ReadOnlyMany]);
    check(wider(), &bound_claim("c", "v"), Some("claim c Bound +RWO +ROX"));
    check(wider(), &in_phase(ClaimPhase::Lost, |_| {}), Some("claim c Bound +RWO +ROX"));
    // Compared as lists, as upstream does: another order is another value.
    let turned = its_volume(|v| v.access_modes = vec![AccessMode::ReadOnlyMany, AccessMode::ReadWriteOnce]);
    let claim = in_phase(ClaimPhase::Bound, |c| {
        c.status.access_modes = vec![AccessMode::ReadWriteOnce, AccessMode::ReadOnlyMany];
    });
    check(turned, &claim, Some("claim c Bound +ROX +RWO"));
}

#[test]
fn the_capacity_changes_with_the_phase_only() {
    let grown = || its_volume(|v| v.capacity = Some(gi(9)));
    check(grown(), &bound_claim("c", "v"), None);
    for phase in [ClaimPhase::Pending, ClaimPhase::Lost, ClaimPhase::Unset] {
        check(grown(), &in_phase(phase, |_| {}), Some("claim c Bound capacity=9Gi"));
    }
    // The same by value.
    check(its_volume(|_| {}), &in_phase(ClaimPhase::Pending, |_| {}), Some("claim c Bound"));
}

#[test]
fn a_volume_that_is_being_resized_gives_what_it_had_before() {
    let resizing = || {
        its_volume(|v| {
            v.capacity = Some(gi(9));
            v.annotations.pre_resize_capacity = Some(gi(5));
        })
    };
    // Written even where it is the claim's already.
    check(resizing(), &in_phase(ClaimPhase::Pending, |_| {}), Some("claim c Bound storage=5Gi"));
    check(resizing(), &bound_claim("c", "v"), None);
}

#[test]
fn a_volume_without_capacity_fails_where_the_phase_changes() {
    let without = || its_volume(|v| v.capacity = None);
    check(without(), &bound_claim("c", "v"), None);
    let failure = "failed: PersistentVolume \"v\" has no spec.capacity.storage; set it";
    check_claim(&mut ListCluster::new([without()], []), &in_phase(ClaimPhase::Lost, |_| {}), &[failure]);
}

#[test]
fn the_attributes_class_is_set_once_from_pending() {
    let fast = || its_volume(|v| v.attributes_class = Some("fast".into()));
    check(fast(), &in_phase(ClaimPhase::Pending, |_| {}), Some("claim c Bound attributes=fast"));
    for phase in [ClaimPhase::Lost, ClaimPhase::Unset] {
        check(fast(), &in_phase(phase, |_| {}), Some("claim c Bound"));
    }
    // Later changes are the resizer's.
    check(fast(), &bound_claim("c", "v"), None);
    let had = |phase| in_phase(phase, |c| c.status.attributes_class = Some("slow".into()));
    check(its_volume(|_| {}), &had(ClaimPhase::Pending), Some("claim c Bound -attributes"));
    check(its_volume(|_| {}), &had(ClaimPhase::Bound), None);
    // None and the empty name match alike, and are two values here.
    let empty = its_volume(|v| v.attributes_class = Some("".into()));
    check(empty, &in_phase(ClaimPhase::Pending, |_| {}), Some("claim c Bound attributes="));
}

#[test]
fn the_status_of_a_claim_without_volume_is_cleared() {
    let check =
        |claim: &Claim, expected: &[&str]| check_claim(&mut ListCluster::new([], []), claim, expected);
    let was_bound = |change: fn(&mut Claim)| {
        claim("c", |c| {
            c.volume_name = Some("gone".into());
            c.status = bound_claim("c", "gone").status;
            change(c);
        })
    };
    let with_attributes = was_bound(|c| c.status.attributes_class = Some("slow".into()));
    check(&with_attributes, &["claim c Pending -modes -capacity -attributes", "done"]);
    let pending = was_bound(|c| c.status.phase = ClaimPhase::Pending);
    check(&pending, &["claim c Pending -modes -capacity", "done"]);
    // A capacity of other resources than storage is one, too.
    let other = was_bound(|c| {
        c.status.phase = ClaimPhase::Pending;
        c.status.access_modes.clear();
        c.status.capacity = None;
    });
    check(&other, &["claim c Pending -capacity", "done"]);
    let unset = claim("c", |c| {
        c.volume_name = Some("gone".into());
        c.status.phase = ClaimPhase::Unset;
    });
    check(&unset, &["claim c Pending", "done"]);
}
