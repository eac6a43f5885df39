//! Reviews of claims and volumes that are about to be written.

use bindery_core::{
    AccessMode, BindingMode, Claim, Outcome, Quantity, ReclaimPolicy, Subject, Volume, VolumeMode,
    VolumePhase,
};

use crate::cluster::ListCluster;
use crate::{bound_claim, bound_to, claim, class, decide, gi, lines, reserved_for, volume};

fn named(change: impl FnOnce(&mut Claim)) -> Claim {
    claim("c", |c| {
        c.volume_name = Some("v".into());
        change(c);
    })
}

fn of_claim(cluster: &mut ListCluster, new: &Claim, old: Option<&Claim>) -> Vec<String> {
    let subject = Subject::ReviewClaim { new: new.clone().into(), old: old.cloned().map(Into::into) };
    let decision = decide(cluster, subject);
    assert!(decision.steps.is_empty());
    assert_eq!(decision.outcome, Outcome::Done);
    lines::findings(&decision.findings)
}

fn of_volume(cluster: &mut ListCluster, new: &Volume, old: Option<&Volume>) -> Vec<String> {
    let subject = Subject::ReviewVolume { new: new.clone().into(), old: old.cloned().map(Into::into) };
    let decision = decide(cluster, subject);
    assert!(decision.steps.is_empty());
    lines::findings(&decision.findings)
}

type Change = fn(&mut Volume);

/// Ways in which a volume does not satisfy a claim, with the claim's and the volume's value.
const MISMATCHES: [(Change, &str, &str, &str); 5] = [
    (|v| v.capacity = Some(gi(1)), "VolumeTooSmall", "5Gi", "1Gi"),
    (|v| v.class = "gold".into(), "ClassDiffers", "", "gold"),
    (|v| v.attributes_class = Some("fast".into()), "AttributesClassDiffers", "", "fast"),
    (|v| v.mode = VolumeMode::Block, "VolumeModeDiffers", "Filesystem", "Block"),
    (
        |v| v.access_modes = vec![AccessMode::ReadOnlyMany, AccessMode::ReadWriteMany],
        "AccessModesMissing",
        "ReadWriteOnce",
        "ReadOnlyMany,ReadWriteMany",
    ),
];

#[test]
fn a_claim_that_names_a_volume_which_cannot_satisfy_it_is_denied() {
    for (change, rule, claim, volume_value) in MISMATCHES {
        let mut cluster = ListCluster::new([volume("v", change)], []);
        let expected = format!("{rule} {claim:?} / {volume_value:?}");
        assert_eq!(of_claim(&mut cluster, &named(|_| {}), None), [expected]);
        // Not on a request that leaves it as it was, nor on a claim that is marked as bound: it is bound
        // without a check.
        assert!(of_claim(&mut cluster, &named(|c| c.deleting = true), Some(&named(|_| {}))).is_empty());
        assert!(of_claim(&mut cluster, &bound_claim("c", "v"), None).is_empty());
        // On the one that names the volume, later.
        assert_eq!(of_claim(&mut cluster, &named(|_| {}), Some(&crate::claim("c", |_| {}))).len(), 1);
    }
    assert!(of_claim(&mut ListCluster::new([volume("v", |_| {})], []), &named(|_| {}), None).is_empty());
}

#[test]
fn a_mutual_pair_that_does_not_match_gets_a_warning() {
    for (change, ..) in MISMATCHES {
        for claim_ref in [bound_to("c"), reserved_for("c")] {
            let meeting = volume("v", |v| {
                change(v);
                v.claim_ref = claim_ref;
            });
            let findings = of_claim(&mut ListCluster::new([meeting.clone()], []), &named(|_| {}), None);
            assert!(findings.iter().all(|finding| finding.starts_with("PairMismatch")), "{findings:?}");
            assert_eq!(findings.len(), 1);
            let findings = of_volume(&mut ListCluster::new([], [named(|_| {})]), &meeting, None);
            assert!(findings.iter().all(|finding| finding.starts_with("PairMismatch")), "{findings:?}");
            assert_eq!(findings.len(), 1);
        }
    }
}

#[test]
fn an_update_of_a_mutual_pair_reports_each_field_that_then_differs() {
    let small = volume("v", |v| (v.claim_ref, v.capacity) = (bound_to("c"), Some(gi(1))));
    let block = named(|c| c.mode = VolumeMode::Block);
    let found = of_claim(&mut ListCluster::new([small.clone()], []), &block, Some(&named(|_| {})));
    assert_eq!(found, ["PairMismatch \"volumeMode Block\" / \"volumeMode Filesystem\""]);
    let mut cluster = ListCluster::new([], [named(|_| {})]);
    let both = Volume { mode: VolumeMode::Block, ..small.clone() };
    let introduced = ["PairMismatch \"volumeMode Block\" / \"volumeMode Filesystem\""];
    assert_eq!(of_volume(&mut cluster, &both, Some(&small)), introduced);
    // Another value of the same field is nothing new.
    let greedy = named(|c| c.request = gi(9));
    assert!(of_claim(&mut ListCluster::new([small], []), &greedy, Some(&named(|_| {}))).is_empty());
}

#[test]
fn a_claim_with_bind_completed_reports_what_makes_it_lost() {
    // As a copy of a bound claim is, in another namespace or another cluster.
    let copy = bound_claim("c", "v");
    let rows: [(Volume, Vec<Claim>, &[&str]); 7] = [
        (
            volume("v", |v| v.claim_ref = bound_to("d")),
            vec![bound_claim("d", "v")],
            &["VolumeOfOther \"v\" / \"ns/d\""],
        ),
        // Half a pair: lost all the same, but not for ever.
        (
            volume("v", |v| v.claim_ref = bound_to("d")),
            vec![claim("d", |_| {})],
            &["VolumeReserved \"v\" / \"ns/d\""],
        ),
        (
            volume("v", |v| (v.claim_ref, v.phase) = (bound_to("d"), VolumePhase::Released)),
            vec![],
            &["VolumeLeaving \"v\" / \"Released\""],
        ),
        (
            volume("v", |v| (v.claim_ref, v.deleting) = (bound_to("d"), true)),
            vec![],
            &["VolumeLeaving \"v\" / \"being deleted\""],
        ),
        // By its name alone a volume is not that of a claim which was bound before.
        (volume("v", |v| v.claim_ref = reserved_for("c")), vec![], &["VolumeReserved \"v\" / \"ns/c\""]),
        // These are bound at once, whatever they are like.
        (
            volume("v", |v| {
                (v.capacity, v.phase, v.deleting) = (Some(gi(99)), VolumePhase::Failed, true);
                v.node_affinity = true;
            }),
            vec![],
            &[],
        ),
        (
            volume("v", |v| (v.claim_ref, v.mode, v.deleting) = (bound_to("c"), VolumeMode::Block, true)),
            vec![copy.clone()],
            &[],
        ),
    ];
    for (volume, claims, expected) in rows {
        let mut cluster = ListCluster::new([volume], claims);
        assert_eq!(of_claim(&mut cluster, &copy, None), expected);
        // Whatever became of its volume, an update that leaves the claim where it was has not done it, and
        // costs no question.
        let labelled = Claim { deleting: true, ..copy.clone() };
        assert!(of_claim(&mut cluster, &labelled, Some(&copy)).is_empty());
        assert!(cluster.asked.is_empty(), "{:?}", cluster.asked);
        // One that marks it introduces it.
        assert_eq!(of_claim(&mut cluster, &copy, Some(&claim("c", |_| {}))), expected);
    }
    let mut cluster = ListCluster::new([], []);
    assert_eq!(of_claim(&mut cluster, &copy, None), ["VolumeMissing \"v\" / \"\""]);
    assert!(of_claim(&mut cluster, &copy, Some(&copy)).is_empty());
    // One without a volumeName is Lost, and names nothing that a rule is about.
    assert!(of_claim(&mut cluster, &claim("c", |c| c.annotations.bind_completed = true), None).is_empty());
}

#[test]
fn a_volume_that_binds_at_once_is_not_reported_as_leaving() {
    for phase in [VolumePhase::Released, VolumePhase::Failed] {
        for claim_ref in [None, reserved_for("c"), bound_to("c")] {
            let offered = volume("v", |v| (v.claim_ref, v.phase) = (claim_ref, phase));
            let found = of_claim(&mut ListCluster::new([offered], []), &named(|_| {}), None);
            assert!(found.is_empty(), "{found:?}");
        }
        let left = volume("v", |v| (v.claim_ref, v.phase) = (bound_to("e"), phase));
        let expected = format!("VolumeLeaving \"v\" / {:?}", phase.name());
        assert_eq!(of_claim(&mut ListCluster::new([left], []), &named(|_| {}), None), [expected]);
    }
    // Nor one that is being deleted where the pointers meet; that it goes with the claim is a surprise.
    let leaving = volume("v", |v| (v.claim_ref, v.deleting) = (reserved_for("c"), true));
    let found = of_claim(&mut ListCluster::new([leaving], []), &named(|_| {}), None);
    assert_eq!(found, ["PairMismatch \"none\" / \"a deletionTimestamp\""]);
}

#[test]
fn a_named_volume_of_another_claim_is_reported() {
    let taken = volume("v", |v| v.claim_ref = bound_to("d"));
    let mut cluster = ListCluster::new([taken.clone()], [bound_claim("d", "v")]);
    assert_eq!(of_claim(&mut cluster, &named(|_| {}), None), ["VolumeOfOther \"v\" / \"ns/d\""]);
    // Not complete, or by name alone: it may still become free.
    cluster.claims = vec![claim("d", |_| {})];
    assert_eq!(of_claim(&mut cluster, &named(|_| {}), None), ["VolumeReserved \"v\" / \"ns/d\""]);
    cluster.volumes = vec![volume("v", |v| v.claim_ref = reserved_for("d"))];
    assert_eq!(of_claim(&mut cluster, &named(|_| {}), None), ["VolumeReserved \"v\" / \"ns/d\""]);
    cluster.volumes = vec![volume("v", |v| (v.claim_ref, v.phase) = (bound_to("e"), VolumePhase::Released))];
    assert_eq!(of_claim(&mut cluster, &named(|_| {}), None), ["VolumeLeaving \"v\" / \"Released\""]);
}

#[test]
fn a_claim_that_takes_the_place_of_one_of_its_name_is_not_denied() {
    // The store still has the earlier claim, or it is there: then the API server itself says so.
    let taken = volume("v", |v| v.claim_ref = bound_to("c"));
    let mut cluster = ListCluster::new([taken], [bound_claim("c", "v")]);
    let again = named(|c| c.uid = "uid-c-again".into());
    assert_eq!(of_claim(&mut cluster, &again, None), ["VolumeReserved \"v\" / \"ns/c\""]);
    cluster.volumes = vec![volume("v", |v| (v.claim_ref, v.phase) = (bound_to("c"), VolumePhase::Released))];
    assert_eq!(of_claim(&mut cluster, &again, None), ["VolumeLeaving \"v\" / \"Released\""]);
}

#[test]
fn an_object_that_is_being_deleted_denies_nothing() {
    for (change, ..) in MISMATCHES {
        let leaving = volume("v", |v| {
            change(v);
            v.deleting = true;
        });
        let found = of_claim(&mut ListCluster::new([leaving], []), &named(|_| {}), None);
        assert_eq!(found, ["VolumeLeaving \"v\" / \"being deleted\""]);
        let reserved = volume("v", |v| {
            change(v);
            v.claim_ref = reserved_for("c");
        });
        let mut cluster = ListCluster::new([], [claim("c", |c| c.deleting = true)]);
        assert!(of_volume(&mut cluster, &reserved, None).is_empty());
    }
}

#[test]
fn surprising_bindings_get_warnings() {
    let mut cluster = ListCluster::new([], []);
    assert_eq!(of_claim(&mut cluster, &named(|_| {}), None), ["VolumeMissing \"v\" / \"\""]);
    let rows: [(Change, &str); 3] = [
        (|v| v.deleting = true, "VolumeLeaving \"v\" / \"being deleted\""),
        (|v| v.capacity = Some(gi(21)), "VolumeOversized \"5Gi\" / \"21Gi\""),
        (|v| v.node_affinity = true, "NameDefeatsAffinity \"v\" / \"spec.nodeAffinity.required\""),
    ];
    for (change, expected) in rows {
        cluster.volumes = vec![volume("v", change)];
        assert_eq!(of_claim(&mut cluster, &named(|_| {}), None), [expected]);
    }
    cluster.volumes = vec![volume("v", |v| v.class = "wait".into())];
    cluster.classes = vec![class("wait", |c| c.binding_mode = Some(BindingMode::WaitForFirstConsumer))];
    let waiting = named(|c| c.class = Some("wait".into()));
    assert_eq!(of_claim(&mut cluster, &waiting, None), ["NameDefeatsWait \"v\" / \"wait\""]);
}

#[test]
fn a_class_that_cannot_provision_gets_a_warning() {
    let gold = claim("c", |c| c.class = Some("gold".into()));
    let mut cluster = ListCluster::new([], []);
    assert_eq!(of_claim(&mut cluster, &gold, None), ["ClassMissing \"gold\" / \"\""]);
    // A volume made by hand needs no class that exists.
    cluster.volumes = vec![volume("v", |v| v.class = "gold".into())];
    assert!(of_claim(&mut cluster, &gold, None).is_empty());
    cluster.volumes = vec![volume("v", |v| (v.class, v.capacity) = ("gold".into(), Some(gi(1))))];
    assert_eq!(of_claim(&mut cluster, &gold, None), ["ClassMissing \"gold\" / \"\""]);
    for (provisioner, known) in
        [("vendor.example/disk", true), ("kubernetes.io/no-provisioner", true), ("kubernetes.io/gone", false)]
    {
        cluster.classes = vec![class("gold", |c| c.provisioner = provisioner.into())];
        assert_eq!(of_claim(&mut cluster, &gold, None).is_empty(), known, "{provisioner}");
    }
    // Nor does a volume made by hand need a provisioner, free or reserved for the claim.
    for claim_ref in [None, reserved_for("c")] {
        cluster.volumes = vec![volume("v", |v| (v.class, v.claim_ref) = ("gold".into(), claim_ref))];
        assert!(of_claim(&mut cluster, &gold, None).is_empty());
    }
    cluster.volumes = vec![volume("v", |v| (v.class, v.claim_ref) = ("gold".into(), reserved_for("d")))];
    assert_eq!(of_claim(&mut cluster, &gold, None), ["ProvisionerUnknown \"gold\" / \"kubernetes.io/gone\""]);
    cluster.migration = bindery_core::Migration::On("csi.example".into());
    assert!(of_claim(&mut cluster, &gold, None).is_empty());
    for class in [None, Some("".into())] {
        assert!(of_claim(&mut cluster, &claim("c", |c| c.class = class), None).is_empty());
    }
}

#[test]
fn a_complete_pair_is_not_broken() {
    let (v, c) = (volume("v", |v| v.claim_ref = bound_to("c")), bound_claim("c", "v"));
    let mut cluster = ListCluster::new([v.clone()], [c.clone()]);
    let renamed = bound_claim("c", "w");
    let expected = ["BreaksPair \"w\" / \"v\"", "VolumeMissing \"w\" / \"\""];
    assert_eq!(of_claim(&mut cluster, &renamed, Some(&c)), expected);
    let freed = volume("v", |_| {});
    assert_eq!(of_volume(&mut cluster, &freed, Some(&v)), ["BreaksPair \"\" / \"ns/c (uid-c)\""]);
    let by_name = volume("v", |v| v.claim_ref = reserved_for("c"));
    assert_eq!(of_volume(&mut cluster, &by_name, Some(&v)), ["BreaksPair \"ns/c\" / \"ns/c (uid-c)\""]);
    // Half a pair is anybody's.
    cluster.claims = vec![bound_claim("c", "w")];
    assert!(of_volume(&mut cluster, &freed, Some(&v)).is_empty());
    cluster.volumes = vec![freed, volume("w", |_| {})];
    assert!(of_claim(&mut cluster, &renamed, Some(&c)).is_empty());
}

#[test]
fn a_bound_claim_that_only_loses_its_mark_is_bound_again_and_never_denied() {
    // `kubectl annotate pvc c pv.kubernetes.io/bind-completed-`: both pointers still meet, so U8 binds them.
    let c = bound_claim("c", "v");
    let unmarked = named(|_| {});
    let v = volume("v", |v| v.claim_ref = bound_to("c"));
    assert!(of_claim(&mut ListCluster::new([v.clone()], [c.clone()]), &unmarked, Some(&c)).is_empty());
    // It gets the findings of a claim that is not bound.
    for (change, ..) in MISMATCHES {
        let mut other = v.clone();
        change(&mut other);
        let found = of_claim(&mut ListCluster::new([other], [c.clone()]), &unmarked, Some(&c));
        assert!(found.len() == 1 && found[0].starts_with("PairMismatch"), "{found:?}");
    }
}

#[test]
fn an_update_reports_only_the_problems_that_it_introduces() {
    let small = |name: &str| volume(name, |v| v.capacity = Some(gi(1)));
    let mut cluster = ListCluster::new([small("v"), small("w")], []);
    // The volume stays too small, and its mode comes to differ.
    let block = named(|c| c.mode = VolumeMode::Block);
    let introduced = ["VolumeModeDiffers \"Block\" / \"Filesystem\""];
    assert_eq!(of_claim(&mut cluster, &block, Some(&named(|_| {}))), introduced);
    // Another value of the same problem is nothing new; the same problem of another volume is.
    let greedy = named(|c| c.request = gi(9));
    assert!(of_claim(&mut cluster, &greedy, Some(&named(|_| {}))).is_empty());
    let elsewhere = named(|c| c.volume_name = Some("w".into()));
    let introduced = ["VolumeTooSmall \"5Gi\" / \"1Gi\""];
    assert_eq!(of_claim(&mut cluster, &elsewhere, Some(&named(|_| {}))), introduced);

    let mut cluster = ListCluster::new([], [claim("c", |_| {}), claim("d", |c| c.request = gi(9))]);
    let reserved = |claim: &str, mode| {
        volume("v", |v| {
            (v.claim_ref, v.capacity, v.mode) = (reserved_for(claim), Some(gi(1)), mode);
        })
    };
    let old = reserved("c", VolumeMode::Filesystem);
    let introduced = ["VolumeModeDiffers \"Block\" / \"Filesystem\""];
    assert_eq!(of_volume(&mut cluster, &reserved("c", VolumeMode::Block), Some(&old)), introduced);
    let introduced = ["VolumeTooSmall \"1Gi\" / \"9Gi\""];
    assert_eq!(of_volume(&mut cluster, &reserved("d", VolumeMode::Filesystem), Some(&old)), introduced);
}

#[test]
fn a_volume_is_far_larger_above_four_times_the_request() {
    let rows = [
        ("5Gi", "20Gi", false),
        ("5Gi", "21474836481", true),
        // Quantities may have fractions.
        ("500m", "2", false),
        ("500m", "2000000001n", true),
        ("1500m", "5999999999n", false),
        ("1500m", "6000000001n", true),
    ];
    for (request, capacity, is_told) in rows {
        let [asked, found] = [request, capacity].map(|text| Quantity::parse(text).unwrap());
        let mut cluster = ListCluster::new([volume("v", |v| v.capacity = Some(found))], []);
        let told = of_claim(&mut cluster, &named(|c| c.request = asked), None);
        let is_oversized = told.iter().any(|finding| finding.starts_with("VolumeOversized"));
        assert_eq!((told.len(), is_oversized), (usize::from(is_told), is_told), "{request} of {capacity}");
    }
}

#[test]
fn a_volume_reserved_for_a_claim_that_it_cannot_satisfy_is_denied() {
    let mut cluster = ListCluster::new([], [claim("c", |_| {})]);
    for (change, rule, claim, volume_value) in MISMATCHES {
        let reserved = volume("v", |v| {
            change(v);
            v.claim_ref = reserved_for("c");
        });
        let expected = format!("{rule} {volume_value:?} / {claim:?}");
        // The class of a reserved volume does not count.
        let expected = if rule == "ClassDiffers" { vec![] } else { vec![expected] };
        assert_eq!(of_volume(&mut cluster, &reserved, None), expected);
        assert!(of_volume(&mut cluster, &reserved, Some(&reserved)).is_empty());
    }
    let small = volume("v", |v| (v.claim_ref, v.capacity) = (reserved_for("c"), Some(gi(1))));
    for claims in
        [vec![], vec![bound_claim("c", "v")], vec![claim("c", |c| c.volume_name = Some("w".into()))]]
    {
        assert!(of_volume(&mut ListCluster::new([], claims), &small, None).is_empty());
    }
}

#[test]
fn policy_recycle_gets_one_warning() {
    let recycled = volume("v", |v| v.policy = ReclaimPolicy::Recycle);
    let mut cluster = ListCluster::new([], []);
    assert_eq!(
        of_volume(&mut cluster, &recycled, None),
        ["PolicyRecycle \"Recycle\" / \"Retain or Delete\""]
    );
    assert!(of_volume(&mut cluster, &recycled, Some(&recycled)).is_empty());
    assert_eq!(of_volume(&mut cluster, &recycled, Some(&volume("v", |_| {}))).len(), 1);
}

#[test]
fn an_unreadable_object_fails_the_review_without_event() {
    let mut cluster = ListCluster::new([], []);
    cluster.unreadable = vec!["v"];
    let subject = Subject::ReviewClaim { new: named(|_| {}).into(), old: None };
    let decision = decide(&mut cluster, subject);
    assert!(matches!(decision.outcome, Outcome::Failed(_)));
    assert!(decision.steps.is_empty() && decision.findings.is_empty());
}
