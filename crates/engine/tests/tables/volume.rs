//! `syncVolume`: V1 to V9, step 0 and the start of reclaiming.

use bindery_core::{
    FINALIZER_EXTERNAL, FINALIZER_IN_TREE, Migration, OperationState, ReclaimPolicy, Volume, VolumeMode,
    VolumePhase,
};

use crate::cluster::ListCluster;
use crate::{bound_claim, bound_to, check_volume, claim, reserved_for, volume};

fn bound(change: impl FnOnce(&mut Volume)) -> Volume {
    volume("v", |v| {
        v.claim_ref = bound_to("c");
        v.phase = VolumePhase::Bound;
        change(v);
    })
}

#[test]
fn v1_and_v2_a_volume_without_claim_is_available() {
    let mut cluster = ListCluster::new([], []);
    check_volume(&mut cluster, &volume("v", |_| {}), &["done"]);
    let pending = volume("v", |v| v.phase = VolumePhase::Pending);
    check_volume(&mut cluster, &pending, &["volume v Available", "done"]);
    let reserved = volume("v", |v| (v.claim_ref, v.phase) = (reserved_for("c"), VolumePhase::Failed));
    check_volume(&mut cluster, &reserved, &["volume v Available", "done"]);
    assert!(cluster.asked.is_empty());
}

#[test]
fn v3_only_a_claim_that_is_gone_for_certain_releases() {
    let mut cluster = ListCluster::new([], []);
    check_volume(&mut cluster, &bound(|_| {}), &["volume v Released", "done"]);
    assert_eq!(cluster.asked, ["claim overlay c", "claim cache c", "claim live c"]);
    // Released before: the cache alone decides.
    check_volume(&mut cluster, &bound(|v| v.phase = VolumePhase::Released), &["done"]);
    assert_eq!(cluster.asked, ["claim overlay c"]);
    check_volume(&mut cluster, &bound(|v| v.phase = VolumePhase::Failed), &["done"]);

    cluster.live_error = Some("timeout");
    check_volume(&mut cluster, &bound(|_| {}), &["failed: timeout"]);
    cluster.live_error = None;
    cluster.live_claims = Some(vec![bound_claim("c", "v")]);
    check_volume(&mut cluster, &bound(|v| v.phase = VolumePhase::Available), &["volume v Bound", "done"]);
    cluster.cached_claims = vec![bound_claim("c", "v")];
    check_volume(&mut cluster, &bound(|_| {}), &["done"]);
    assert_eq!(cluster.asked, ["claim overlay c", "claim cache c"]);
}

#[test]
fn v3_a_claim_of_another_uid_is_read_live() {
    let old = claim("c", |c| c.uid = "uid-old".into());
    let mut cluster = ListCluster::new([], [old]);
    check_volume(&mut cluster, &bound(|_| {}), &["volume v Released", "done"]);
    assert_eq!(cluster.asked, ["claim overlay c", "claim live c"]);
    cluster.live_claims = Some(Vec::new());
    check_volume(&mut cluster, &bound(|_| {}), &["volume v Released", "done"]);
    cluster.live_claims = Some(vec![bound_claim("c", "v")]);
    check_volume(&mut cluster, &bound(|_| {}), &["done"]);
    cluster.live_error = Some("timeout");
    check_volume(&mut cluster, &bound(|_| {}), &["failed: timeout"]);
}

#[test]
fn v4_different_modes_get_events_on_both_objects() {
    let block = claim("c", |c| c.mode = VolumeMode::Block);
    let expected = ["Warning VolumeMismatch on v", "Warning VolumeMismatch on c", "done"];
    check_volume(&mut ListCluster::new([], [block]), &bound(|_| {}), &expected);
    // They are no matter where the claim points somewhere.
    let points =
        |name: &str| claim("c", |c| (c.mode, c.volume_name) = (VolumeMode::Block, Some(name.into())));
    check_volume(&mut ListCluster::new([], [points("v")]), &bound(|_| {}), &["done"]);
    let expected = ["unbind v Uid", "volume v Available", "done"];
    check_volume(&mut ListCluster::new([], [points("w")]), &bound(|_| {}), &expected);
}

#[test]
fn v5_the_claim_completes_the_bind() {
    let mut cluster = ListCluster::new([], [claim("c", |_| {})]);
    check_volume(&mut cluster, &bound(|v| v.phase = VolumePhase::Pending), &["enqueue ns/c", "done"]);
    // Whatever reserved it, and in every phase: nothing is written.
    let by_binder = bound(|v| (v.annotations.bound_by_controller, v.phase) = (true, VolumePhase::Failed));
    check_volume(&mut cluster, &by_binder, &["enqueue ns/c", "done"]);
}

#[test]
fn v6_a_claim_that_points_back_makes_it_bound() {
    let mut cluster = ListCluster::new([], [claim("c", |c| c.volume_name = Some("v".into()))]);
    check_volume(&mut cluster, &bound(|v| v.phase = VolumePhase::Failed), &["volume v Bound", "done"]);
}

#[test]
fn v7_v8_v9_a_claim_that_points_elsewhere() {
    let mut cluster = ListCluster::new([], [bound_claim("c", "w")]);
    let surplus = bound(|v| {
        v.name = "pvc-uid-c".into();
        v.annotations.provisioned_by = Some("vendor.example/disk".into());
        v.policy = ReclaimPolicy::Delete;
        v.annotations.bound_by_controller = true;
    });
    let released = ["volume pvc-uid-c Released", "start Delete \"\" uid-v", "done"];
    check_volume(&mut cluster, &surplus, &released);
    // Provisioned for an earlier claim, and chosen for this one.
    for name in ["pvc-uid-former", "pvc-uid-c-2"] {
        let chosen = Volume { name: name.into(), ..surplus.clone() };
        let unbound = [&*format!("unbind {name} Whole"), &*format!("volume {name} Available"), "done"];
        check_volume(&mut cluster, &chosen, &unbound);
    }
    let by_binder = bound(|v| v.annotations.bound_by_controller = true);
    check_volume(&mut cluster, &by_binder, &["unbind v Whole", "volume v Available", "done"]);
    check_volume(&mut cluster, &bound(|_| {}), &["unbind v Uid", "volume v Available", "done"]);
    let available = bound(|v| v.phase = VolumePhase::Available);
    check_volume(&mut cluster, &available, &["unbind v Uid", "done"]);
    // A Failed volume is reclaimed again; the key of provisioned-by counts, not its value.
    let failed = |policy| {
        bound(|v| {
            v.name = "pvc-uid-c".into();
            v.annotations.provisioned_by = Some("".into());
            (v.phase, v.policy) = (VolumePhase::Failed, policy);
        })
    };
    let kept = ["unbind pvc-uid-c Uid", "volume pvc-uid-c Available", "done"];
    let reclaimed = ["start Delete \"\" uid-v", "done"];
    check_volume(&mut cluster, &failed(ReclaimPolicy::Delete), &reclaimed);
    let unbound = ["unbind v Uid", "volume v Available", "done"];
    for policy in [ReclaimPolicy::Retain, ReclaimPolicy::Recycle, ReclaimPolicy::Unknown] {
        check_volume(&mut cluster, &failed(policy), &kept);
    }
    check_volume(&mut cluster, &bound(|v| v.policy = ReclaimPolicy::Delete), &unbound);
}

#[test]
fn the_policy_says_how_a_released_volume_is_reclaimed() {
    let mut cluster = ListCluster::new([], []);
    let released = |policy| bound(|v| (v.phase, v.policy) = (VolumePhase::Released, policy));
    check_volume(&mut cluster, &released(ReclaimPolicy::Retain), &["done"]);
    check_volume(&mut cluster, &released(ReclaimPolicy::Delete), &["start Delete \"\" uid-v", "done"]);
    check_volume(&mut cluster, &released(ReclaimPolicy::Recycle), &["start Recycle \"\" uid-v", "done"]);
    let unknown = [
        "volume v Failed: Volume has unrecognized PersistentVolumeReclaimPolicy",
        "Warning VolumeUnknownReclaimPolicy on v",
        "done",
    ];
    check_volume(&mut cluster, &released(ReclaimPolicy::Unknown), &unknown);
    let failed = |policy| bound(|v| (v.phase, v.policy) = (VolumePhase::Failed, policy));
    check_volume(&mut cluster, &failed(ReclaimPolicy::Unknown), &["done"]);
    // A failed reclaim is tried again at every sync.
    check_volume(&mut cluster, &failed(ReclaimPolicy::Delete), &["start Delete \"\" uid-v", "done"]);
    check_volume(&mut cluster, &failed(ReclaimPolicy::Recycle), &["start Recycle \"\" uid-v", "done"]);
    cluster.operation = OperationState::Running;
    check_volume(&mut cluster, &released(ReclaimPolicy::Delete), &["done"]);

    let migrated = |driver: &str, policy| {
        bound(|v| {
            (v.phase, v.policy) = (VolumePhase::Released, policy);
            v.annotations.migrated_to = Some(driver.into());
        })
    };
    let mut cluster = ListCluster::new([], []);
    for policy in [ReclaimPolicy::Delete, ReclaimPolicy::Recycle, ReclaimPolicy::Unknown] {
        check_volume(&mut cluster, &migrated("pd.csi.storage.gke.io", policy), &["done"]);
    }
    // An empty driver is none.
    let expected = ["start Delete \"\" uid-v", "done"];
    check_volume(&mut cluster, &migrated("", ReclaimPolicy::Delete), &expected);
}

#[test]
fn step_0_updates_annotation_and_finalizers_in_one_write() {
    type Change = fn(&mut Volume);
    let in_tree: Change = |v| v.annotations.provisioned_by = Some("kubernetes.io/gce-pd".into());
    let delete: Change = |v| v.policy = ReclaimPolicy::Delete;
    let with_in_tree: Change = |v| v.finalizers.push(FINALIZER_IN_TREE.into());
    let with_external: Change = |v| v.finalizers.push(FINALIZER_EXTERNAL.into());
    let migrated: Change = |v| v.annotations.migrated_to = Some("csi.example".into());
    let no_driver: Change = |v| v.annotations.migrated_to = Some("".into());
    let external: Change = |v| v.annotations.provisioned_by = Some("vendor.example/disk".into());
    let unknown: Change = |v| v.policy = ReclaimPolicy::Unknown;
    let recycle: Change = |v| v.policy = ReclaimPolicy::Recycle;
    let deleting: Change = |v| v.deleting = true;
    let (off, on) = (Migration::Off, Migration::On("csi.example".into()));
    let rows: [(&Migration, &[Change], Option<&str>); 17] = [
        (&off, &[delete, with_in_tree], None),
        (&off, &[in_tree, delete], Some(" +in-tree")),
        (&off, &[in_tree, delete, with_in_tree], None),
        (&off, &[in_tree, delete, with_external], Some(" +in-tree -external")),
        (&off, &[in_tree, delete, with_external, migrated], Some(" -migrated-to +in-tree -external")),
        (&off, &[in_tree], None),
        (&off, &[in_tree, no_driver], None),
        (&off, &[in_tree, with_in_tree], Some(" -in-tree")),
        (&off, &[in_tree, with_in_tree, recycle], Some(" -in-tree")),
        (&off, &[in_tree, with_in_tree, unknown], None),
        // The same for a volume that is being deleted, although the API server refuses that write.
        (&off, &[in_tree, delete, with_in_tree, deleting], None),
        (&off, &[in_tree, delete, deleting], Some(" +in-tree")),
        (&off, &[external, delete, with_in_tree, with_external], None),
        (&on, &[in_tree, delete], Some(" migrated-to=csi.example")),
        (&on, &[in_tree, delete, with_in_tree, with_external], Some(" migrated-to=csi.example -in-tree")),
        (&on, &[in_tree, migrated], None),
        (&Migration::Untranslatable, &[in_tree, with_in_tree], Some(" -in-tree")),
    ];
    for (migration, changes, expected) in rows {
        let mut cluster = ListCluster::new([], []);
        cluster.migration = migration.clone();
        let changed = volume("v", |v| changes.iter().for_each(|change| change(v)));
        let expected = expected.map(|edits| format!("annotate volume v{edits}"));
        let expected: Vec<_> = expected.as_deref().into_iter().chain(["done"]).collect();
        check_volume(&mut cluster, &changed, &expected);
    }
}

#[test]
fn reclaiming_uses_the_migration_of_the_same_sync() {
    let released = bound(|v| {
        (v.phase, v.policy) = (VolumePhase::Released, ReclaimPolicy::Delete);
        v.annotations.provisioned_by = Some("kubernetes.io/gce-pd".into());
    });
    let mut cluster = ListCluster::new([], []);
    cluster.migration = Migration::On("pd.csi.storage.gke.io".into());
    let expected = ["annotate volume v migrated-to=pd.csi.storage.gke.io", "done"];
    check_volume(&mut cluster, &released, &expected);
}

#[test]
fn step_0_comes_before_a_read_that_fails() {
    let volume = bound(|v| {
        v.annotations.provisioned_by = Some("kubernetes.io/gce-pd".into());
        v.policy = ReclaimPolicy::Delete;
    });
    let mut cluster = ListCluster::new([], []);
    cluster.live_error = Some("timeout");
    check_volume(&mut cluster, &volume, &["annotate volume v +in-tree", "failed: timeout"]);
}

#[test]
fn a_claim_that_cannot_be_read_is_not_gone() {
    let mut cluster = ListCluster::new([], []);
    cluster.unreadable = vec!["c"];
    let expected = ["Warning Unreadable on v", "failed: claim ns/c: spec.capacity is no quantity"];
    check_volume(&mut cluster, &bound(|_| {}), &expected);
    check_volume(&mut cluster, &bound(|v| v.phase = VolumePhase::Released), &expected);
}
