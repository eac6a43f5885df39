//! Clusters with one violation each, and clusters without.

use serde_json::{Value, json};

use crate::{Rule, Snapshot};

/// A volume of 5 GiB that is bound to claim `default/c`, both by the binder.
fn volume() -> Value {
    json!({
        "metadata": {
            "name": "v",
            "uid": "uid-v",
            "labels": {"disk": "fast"},
            "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
            "finalizers": ["kubernetes.io/pv-protection"],
        },
        "spec": {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "volumeMode": "Filesystem",
            "storageClassName": "gold",
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": "default", "name": "c", "uid": "uid-c",
            },
        },
        "status": {"phase": "Bound"},
    })
}

fn claim() -> Value {
    json!({
        "metadata": {
            "name": "c",
            "namespace": "default",
            "uid": "uid-c",
            "annotations": {
                "pv.kubernetes.io/bind-completed": "yes",
                "pv.kubernetes.io/bound-by-controller": "yes",
            },
            "finalizers": ["kubernetes.io/pvc-protection"],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "5120Mi"}},
            "volumeMode": "Filesystem",
            "storageClassName": "gold",
            "volumeName": "v",
        },
        "status": {
            "phase": "Bound",
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        },
    })
}

/// The change that makes the bound volume free.
fn free() -> Value {
    json!({"metadata": {"annotations": null}, "spec": {"claimRef": null}, "status": {"phase": "Available"}})
}

/// The change that makes the bound claim wait for any volume.
fn waiting() -> Value {
    json!({"metadata": {"annotations": null}, "spec": {"volumeName": null}, "status": null})
}

/// `object` with a JSON merge patch applied.
fn with(mut object: Value, change: Value) -> Value {
    json_patch::merge(&mut object, &change);
    object
}

fn broken(volumes: &[Value], claims: &[Value]) -> Vec<(Rule, String)> {
    let class = json!({"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"});
    let snapshot = Snapshot::read(volumes, claims, &[class]).expect("the objects can be read");
    let violations = snapshot.violations();
    let harms: Vec<_> = violations.iter().filter(|it| it.rule <= Rule::Protected).cloned().collect();
    assert_eq!(snapshot.harms(), harms);
    violations.into_iter().map(|violation| (violation.rule, violation.object)).collect()
}

/// A change of the bound volume, a change of the bound claim, and the rules that they break.
type Row<'a> = (Value, Value, &'a [(Rule, &'a str)]);

fn check_pair(rows: &[Row<'_>]) {
    for (of_volume, of_claim, expected) in rows {
        let found = broken(&[with(volume(), of_volume.clone())], &[with(claim(), of_claim.clone())]);
        let expected: Vec<_> = expected.iter().map(|(rule, name)| (*rule, (*name).to_owned())).collect();
        assert_eq!(found, expected, "volume {of_volume}, claim {of_claim}");
    }
}

const VOLUME: &str = "volume v";
const CLAIM: &str = "claim default/c";

#[test]
fn a_sound_pair_breaks_no_rule() {
    check_pair(&[(json!({}), json!({}), &[])]);
}

#[test]
fn a_pair_that_loses_its_volume_or_its_fit_breaks_a_rule() {
    use Rule::{ClaimPhase, Fits, NotReclaimed, PointsBack, Protected, VolumePhase};
    let gone = json!({"metadata": {"finalizers": null}});
    check_pair(&[
        (
            json!({"status": {"phase": "Released"}}),
            json!({}),
            &[(NotReclaimed, VOLUME), (VolumePhase, VOLUME)],
        ),
        (json!({"status": {"phase": "Failed"}}), json!({}), &[(NotReclaimed, VOLUME), (VolumePhase, VOLUME)]),
        (
            json!({"spec": {"capacity": {"storage": "5119Mi"}}}),
            json!({"status": {"capacity": {"storage": "5119Mi"}}}),
            &[(Fits, CLAIM)],
        ),
        (json!({"spec": {"storageClassName": "lead"}}), json!({}), &[(Fits, CLAIM)]),
        (
            json!({}),
            json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "lead"}}}),
            &[(Fits, CLAIM)],
        ),
        (json!({"spec": {"volumeMode": "Block"}}), json!({}), &[(Fits, CLAIM)]),
        (json!({"spec": {"volumeAttributesClassName": "quick"}}), json!({}), &[(Fits, CLAIM)]),
        (json!({}), json!({"spec": {"accessModes": ["ReadWriteMany"]}}), &[(Fits, CLAIM)]),
        (json!({}), json!({"spec": {"selector": {"matchLabels": {"disk": "slow"}}}}), &[(Fits, CLAIM)]),
        (
            json!({"spec": {"claimRef": {"uid": "uid-other"}}}),
            json!({}),
            &[(PointsBack, CLAIM), (VolumePhase, VOLUME), (ClaimPhase, CLAIM)],
        ),
        (
            json!({"spec": {"claimRef": {"uid": "uid-other"}}, "status": {"phase": "Released"}}),
            json!({"status": {"phase": "Lost"}}),
            &[(PointsBack, CLAIM)],
        ),
        (gone.clone(), json!({}), &[(Protected, VOLUME)]),
        (json!({}), gone, &[(Protected, CLAIM)]),
    ]);
}

#[test]
fn a_choice_of_a_user_need_not_fit() {
    let unmarked = json!({"pv.kubernetes.io/bound-by-controller": null});
    let reserved = json!({"metadata": {"annotations": unmarked}});
    let named = json!({"metadata": {"annotations": unmarked}});
    let selects =
        json!({"spec": {"selector": {"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}}});
    let small = json!({"spec": {"capacity": {"storage": "1Gi"}}});
    let told = json!({"status": {"capacity": {"storage": "1Gi"}}});
    let lead = json!({"spec": {"storageClassName": "lead"}});
    let misfit: &[_] = &[(Rule::Fits, CLAIM)];
    check_pair(&[
        // The user reserved the volume, and the binder found it by that.
        (with(reserved.clone(), lead.clone()), selects.clone(), &[]),
        (with(reserved.clone(), small.clone()), told.clone(), misfit),
        // The user named the volume, which was free.
        (json!({}), with(named.clone(), selects.clone()), &[]),
        (lead.clone(), named.clone(), misfit),
        (json!({}), selects, misfit),
        // Both chose, so the match is not checked.
        (with(reserved, with(small, lead)), with(named, told), &[]),
    ]);
}

#[test]
fn a_bound_or_lost_claim_without_its_volume_breaks_a_rule() {
    let lost = with(claim(), json!({"status": {"phase": "Lost"}}));
    assert_eq!(broken(&[], &[lost]), [(Rule::VolumeKept, CLAIM.to_owned())]);
    let found = broken(&[], &[claim()]);
    assert_eq!(found, [(Rule::VolumeKept, CLAIM.to_owned()), (Rule::ClaimPhase, CLAIM.to_owned())]);
}

#[test]
fn two_claims_with_one_volume_break_a_rule() {
    let second = with(claim(), json!({"metadata": {"name": "d", "uid": "uid-d"}}));
    let found = broken(&[volume()], &[claim(), second]);
    let second = || "claim default/d".to_owned();
    assert_eq!(
        found,
        [(Rule::OneClaim, second()), (Rule::PointsBack, second()), (Rule::ClaimPhase, second())]
    );
}

#[test]
fn an_unfinished_pair_breaks_a_rule() {
    use Rule::{
        ClaimPhase, ClaimStatus, Finalizer, Marked, PairCompleted, PointsBack, Reservation, VolumePhase,
    };
    let provisioned = |policy: &str, finalizers: Value| {
        json!({
            "metadata": {
                "annotations": {"pv.kubernetes.io/provisioned-by": "kubernetes.io/host-path"},
                "finalizers": finalizers,
            },
            "spec": {"persistentVolumeReclaimPolicy": policy},
        })
    };
    let protected = json!(["kubernetes.io/pv-protection"]);
    let held = json!(["kubernetes.io/pv-protection", "kubernetes.io/pv-controller"]);
    let unmarked = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": null}}});
    check_pair(&[
        (json!({"status": {"phase": "Available"}}), json!({}), &[(VolumePhase, VOLUME)]),
        (json!({}), json!({"status": {"phase": "Pending"}}), &[(ClaimPhase, CLAIM)]),
        (json!({}), json!({"status": {"phase": "Lost"}}), &[(ClaimPhase, CLAIM)]),
        (json!({}), json!({"status": {"capacity": {"storage": "1Gi"}}}), &[(ClaimStatus, CLAIM)]),
        (json!({}), json!({"status": {"accessModes": ["ReadWriteOnce"]}}), &[(ClaimStatus, CLAIM)]),
        (json!({}), unmarked, &[(Marked, CLAIM), (PairCompleted, CLAIM)]),
        (free(), json!({}), &[(PointsBack, CLAIM), (PairCompleted, CLAIM)]),
        (json!({"spec": {"claimRef": {"kind": null}}}), json!({}), &[(Reservation, VOLUME)]),
        (provisioned("Delete", held.clone()), json!({}), &[]),
        (provisioned("Delete", protected.clone()), json!({}), &[(Finalizer, VOLUME)]),
        (provisioned("Retain", held), json!({}), &[(Finalizer, VOLUME)]),
        (provisioned("Retain", protected), json!({}), &[]),
    ]);
}

#[test]
fn a_claim_that_waits_beside_a_fitting_volume_breaks_a_rule() {
    use Rule::{NoneWaits, PairCompleted};
    let late = json!({"spec": {"storageClassName": "late"}});
    let names = with(waiting(), json!({"spec": {"volumeName": "v"}}));
    let reserved = json!({
        "metadata": {"annotations": null},
        "spec": {"claimRef": {"uid": null}, "storageClassName": "lead"},
        "status": {"phase": "Available"},
    });
    let large = json!({"spec": {"resources": {"requests": {"storage": "6Gi"}}}});
    check_pair(&[
        (free(), waiting(), &[(NoneWaits, CLAIM)]),
        (free(), with(waiting(), large.clone()), &[]),
        (free(), with(waiting(), json!({"spec": {"selector": {"matchLabels": {"disk": "slow"}}}})), &[]),
        (free(), with(waiting(), json!({"spec": {"selector": {}}})), &[(NoneWaits, CLAIM)]),
        (with(free(), late.clone()), with(waiting(), late), &[]),
        (
            with(free(), json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            waiting(),
            &[(Rule::DeletionEnds, VOLUME)],
        ),
        (free(), names.clone(), &[(PairCompleted, CLAIM)]),
        (free(), with(names.clone(), large.clone()), &[]),
        (reserved.clone(), waiting(), &[(NoneWaits, CLAIM)]),
        (reserved.clone(), with(waiting(), large.clone()), &[]),
        // A claim and a volume that name each other bind even if they do not match.
        (reserved, with(names, large), &[(PairCompleted, CLAIM)]),
    ]);
}

#[test]
fn a_volume_without_a_claim_must_be_released_or_free() {
    use Rule::{Reservation, VolumePhase};
    let released = json!({"status": {"phase": "Released"}});
    for (change, expected) in [
        (json!({}), vec![VolumePhase]),
        (released.clone(), vec![]),
        (json!({"status": {"phase": "Failed"}}), vec![]),
        (json!({"status": {"phase": "Available"}}), vec![VolumePhase]),
        (free(), vec![]),
        (with(free(), json!({"status": {"phase": "Pending"}})), vec![VolumePhase]),
    ] {
        let found: Vec<_> =
            broken(&[with(volume(), change.clone())], &[]).into_iter().map(|(rule, _)| rule).collect();
        assert_eq!(found, expected, "{change}");
    }
    // A new claim of the same name waits for another volume.
    let large =
        json!({"metadata": {"uid": "uid-new"}, "spec": {"resources": {"requests": {"storage": "6Gi"}}}});
    assert_eq!(broken(&[with(volume(), released)], &[with(with(claim(), waiting()), large)]), []);
    // The claim has another volume.
    let other = with(volume(), json!({"metadata": {"name": "w", "uid": "uid-w"}}));
    assert_eq!(broken(&[volume(), other.clone()], &[claim()]), [(Reservation, "volume w".to_owned())]);
    let surplus = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "csi.example"}},
        "spec": {"persistentVolumeReclaimPolicy": "Delete"},
        "status": {"phase": "Released"},
    });
    assert_eq!(broken(&[volume(), with(other, surplus)], &[claim()]), []);
}

#[test]
fn volumes_that_mode_steer_has_reserved_break_rules_until_they_are_bound() {
    use Rule::{SteeredOnce, SteeringEnds};
    let annotation =
        json!({"metadata": {"annotations": {"steer.bindery.dev/reserved-for": "default/c uid-c"}}});
    assert_eq!(
        broken(&[with(volume(), annotation.clone())], &[claim()]),
        [(SteeringEnds, VOLUME.to_owned())]
    );
    let second = json!({
        "metadata": {"name": "w", "annotations": {"pv.kubernetes.io/bound-by-controller": null}},
        "spec": {"claimRef": {"uid": null}},
        "status": {"phase": "Available"},
    });
    let second = with(with(volume(), annotation), second);
    assert_eq!(
        broken(&[volume(), second], &[claim()]),
        [(SteeredOnce, VOLUME.to_owned()), (SteeringEnds, "volume w".to_owned())]
    );
    // A person has reserved it for another claim since.
    let taken = json!({
        "metadata": {"annotations": {"steer.bindery.dev/reserved-for": "default/d uid-d"}},
    });
    assert_eq!(broken(&[with(volume(), taken)], &[claim()]), []);
}

#[test]
fn a_capacity_that_is_not_a_quantity_is_an_error() {
    let odd = with(volume(), json!({"spec": {"capacity": {"storage": "lots"}}}));
    let error = Snapshot::read(&[odd], &[], &[]).expect_err("it cannot be read");
    assert_eq!(error, r#"volume v: /spec/capacity/storage is "lots", which is not a quantity"#);
}
