//! `syncClaim`: U1 to U10 and B1 to B5.

use bindery_core::{
    AccessMode, BindingMode, ClaimPhase, Migration, OperationState, Plugin, Pod, Reason, Subject,
};

use crate::cluster::ListCluster;
use crate::{bound_claim, bound_to, check_claim, claim, class, decide, gi, reserved_for, volume};

fn host_path() -> Plugin {
    Plugin {
        name: "kubernetes.io/host-path".into(),
        provisions: true,
        deletes: true,
        recycles: true,
        mount_options: false,
    }
}

#[test]
fn a_free_volume_is_bound_by_four_writes() {
    let c = claim("c", |_| {});
    let mut cluster = ListCluster::new([volume("v", |_| {})], [c.clone()]);
    check_claim(
        &mut cluster,
        &c,
        &[
            "reserve v for c mark",
            "volume v Bound",
            "bind c to v name mark",
            "claim c Bound +RWO capacity=5Gi",
            "done",
        ],
    );
    assert_eq!(cluster.asked, ["access sets 1", "reserved for c", "candidates 1 8", "describe 0"]);
}

#[test]
fn a_crash_between_two_writes_is_completed() {
    let c = claim("c", |_| {});
    let reserved = volume("v", |v| {
        v.claim_ref = bound_to("c");
        v.annotations.bound_by_controller = true;
    });
    let expected = ["bind c to v name mark", "claim c Bound +RWO capacity=5Gi", "done"];
    let mut cluster = ListCluster::new([reserved.clone()], []);
    check_claim(&mut cluster, &c, &[&["volume v Bound"], &expected[..]].concat());

    let phase_saved = volume("v", |v| {
        v.claim_ref = bound_to("c");
        v.phase = bindery_core::VolumePhase::Bound;
    });
    check_claim(&mut ListCluster::new([phase_saved.clone()], []), &c, &expected);

    let claim_saved = claim("c", |c| {
        c.volume_name = Some("v".into());
        c.annotations.bind_completed = true;
    });
    check_claim(&mut ListCluster::new([phase_saved], []), &claim_saved, &expected[1..]);
}

#[test]
fn bound_by_controller_marks_what_the_binder_chose() {
    let by_name = volume("v", |v| v.claim_ref = reserved_for("c"));
    let named = claim("c", |c| c.volume_name = Some("v".into()));
    // The user has chosen on the volume's side, on the claim's, and on both.
    let rows = [
        (by_name.clone(), claim("c", |_| {}), ["reserve v for c", "bind c to v name mark"]),
        (volume("v", |_| {}), named.clone(), ["reserve v for c mark", "bind c to v"]),
        (by_name, named, ["reserve v for c", "bind c to v"]),
    ];
    for (volume, claim, [reserve, bind]) in rows {
        let expected = [reserve, "volume v Bound", bind, "claim c Bound +RWO capacity=5Gi", "done"];
        check_claim(&mut ListCluster::new([volume], []), &claim, &expected);
    }
}

#[test]
fn the_status_of_a_bound_claim_is_the_volume_s() {
    let resizing = volume("v", |v| {
        v.annotations.pre_resize_capacity = Some(gi(1));
        v.attributes_class = Some("fast".into());
        v.access_modes = vec![AccessMode::ReadWriteOnce, AccessMode::ReadOnlyMany];
    });
    let c = claim("c", |c| c.attributes_class = Some("fast".into()));
    let expected = "claim c Bound +RWO +ROX storage=1Gi attributes=fast";
    let decision = decide(&mut ListCluster::new([resizing], []), Subject::SyncClaim(c.into()));
    assert_eq!(crate::lines::decision(&decision)[3], expected);
}

#[test]
fn a_volume_without_capacity_fails_the_last_write() {
    let without = volume("v", |v| v.capacity = None);
    let c = claim("c", |c| {
        c.request = gi(0);
        c.volume_name = Some("v".into());
    });
    check_claim(
        &mut ListCluster::new([without], []),
        &c,
        &[
            "reserve v for c mark",
            "volume v Bound",
            "bind c to v",
            "failed: PersistentVolume \"v\" has no spec.capacity.storage; set it",
        ],
    );
}

#[test]
fn u1_the_newest_default_class_is_assigned() {
    let c = claim("c", |_| {});
    let mut cluster = ListCluster::new([], []);
    cluster.classes = vec![
        class("older", |c| (c.default, c.created) = (true, 1)),
        class("silver", |c| (c.default, c.created) = (true, 2)),
        class("gold", |c| (c.default, c.created) = (true, 2)),
    ];
    check_claim(&mut cluster, &c, &["class of c: gold", "done"]);
    // The empty class is an opinion.
    let no_class = claim("c", |c| c.class = Some("".into()));
    check_claim(&mut cluster, &no_class, &["Normal FailedBinding on c", "done"]);
}

#[test]
fn u1_a_volume_without_class_wins_over_the_default_class() {
    let mut cluster = ListCluster::new([volume("v", |_| {})], []);
    cluster.classes = vec![class("gold", |c| c.default = true)];
    let decision = decide(&mut cluster, Subject::SyncClaim(claim("c", |_| {}).into()));
    assert_eq!(decision.steps.len(), 4);
    assert!(!cluster.asked.contains(&"default classes".to_owned()));
}

#[test]
fn u2_a_class_that_waits_leaves_free_volumes_alone() {
    let c = claim("c", |c| c.class = Some("wait".into()));
    let mut cluster = ListCluster::new([volume("v", |v| v.class = "wait".into())], []);
    cluster.classes = vec![class("wait", |c| c.binding_mode = Some(BindingMode::WaitForFirstConsumer))];
    check_claim(&mut cluster, &c, &["Normal WaitForFirstConsumer on c", "done"]);
    assert_eq!(cluster.asked, ["class wait", "access sets 1", "reserved for c", "pods c"]);

    let pod = |name: &str, scheduled, terminated| Pod { name: name.into(), scheduled, terminated };
    cluster.pods = Ok(vec![pod("p", false, false)]);
    check_claim(&mut cluster, &c, &["Normal WaitForPodScheduled on c", "done"]);
    cluster.pods = Ok(vec![pod("p", true, false), pod("q", false, true)]);
    let was_bound = claim("c", |claim| {
        claim.class = Some("wait".into());
        claim.status = bound_claim("c", "v").status;
    });
    let expected = ["Normal WaitForFirstConsumer on c", "claim c Pending -modes -capacity", "done"];
    check_claim(&mut cluster, &was_bound, &expected);
    let decision = decide(&mut cluster, Subject::SyncClaim(c.clone().into()));
    assert_eq!(decision.tallies[0].reason, Reason::WaitsForConsumer);
    cluster.pods = Err("the index is gone".into());
    check_claim(&mut cluster, &c, &["failed: the index is gone"]);
}

#[test]
fn a_class_that_waits_does_not_hold_back_a_reserved_volume() {
    let c = claim("c", |c| c.class = Some("wait".into()));
    let mut cluster = ListCluster::new([volume("v", |v| v.claim_ref = reserved_for("c"))], []);
    cluster.classes = vec![class("wait", |c| c.binding_mode = Some(BindingMode::WaitForFirstConsumer))];
    assert_eq!(decide(&mut cluster, Subject::SyncClaim(c.into())).steps.len(), 4);
}

#[test]
fn a_class_without_binding_mode_blocks_the_claim() {
    let c = claim("c", |c| c.class = Some("unset".into()));
    let mut cluster = ListCluster::new([], []);
    cluster.classes = vec![class("unset", |c| c.binding_mode = None)];
    let failure = "failed: volumeBindingMode not set for StorageClass \"unset\"; \
                   set it to Immediate or WaitForFirstConsumer";
    check_claim(&mut cluster, &c, &[failure]);
}

#[test]
fn u3_a_class_is_asked_to_provision() {
    let c = claim("c", |c| {
        c.class = Some("gold".into());
        c.status.phase = ClaimPhase::Bound;
    });
    let mut cluster = ListCluster::new([], []);
    check_claim(&mut cluster, &c, &["Warning ProvisioningFailed on c", "done"]);

    cluster.classes = vec![class("gold", |_| {})];
    let external = ["start ProvisionExternal \"vendor.example/disk\" uid-c", "done"];
    check_claim(&mut cluster, &c, &external);

    for in_tree in ["kubernetes.io/no-provisioner", "kubernetes.io/host-path"] {
        cluster.classes[0].provisioner = in_tree.into();
        check_claim(&mut cluster, &c, &["Warning ProvisioningFailed on c", "done"]);
    }
    cluster.plugins = vec![Plugin { provisions: false, ..host_path() }];
    check_claim(&mut cluster, &c, &["Warning ProvisioningFailed on c", "done"]);
    cluster.plugins = vec![host_path()];
    check_claim(&mut cluster, &c, &["start Provision \"kubernetes.io/host-path\" uid-c", "done"]);
    cluster.migration = Migration::On("csi.example".into());
    check_claim(&mut cluster, &c, &["start ProvisionExternal \"kubernetes.io/host-path\" uid-c", "done"]);
    cluster.operation = OperationState::BackingOff;
    check_claim(&mut cluster, &c, &["done"]);
    assert_eq!(cluster.asked.last().unwrap(), "operation ProvisionExternal uid-c");
    cluster.dynamic_provisioning = false;
    check_claim(&mut cluster, &c, &["done"]);
}

#[test]
fn u3_a_selected_node_starts_provisioning() {
    let c = claim("c", |c| {
        c.class = Some("wait".into());
        c.annotations.selected_node = Some("node1".into());
    });
    let mut cluster = ListCluster::new([volume("v", |v| v.class = "wait".into())], []);
    cluster.classes = vec![class("wait", |c| c.binding_mode = Some(BindingMode::WaitForFirstConsumer))];
    check_claim(&mut cluster, &c, &["start ProvisionExternal \"vendor.example/disk\" uid-c", "done"]);
}

#[test]
fn u4_nothing_fits_and_no_class_provisions() {
    let mut cluster = ListCluster::new([volume("v", |v| v.capacity = Some(gi(1)))], []);
    let lost = claim("c", |c| c.status.phase = ClaimPhase::Lost);
    check_claim(&mut cluster, &lost, &["Normal FailedBinding on c", "claim c Pending", "done"]);
    let decision = decide(&mut cluster, Subject::SyncClaim(lost.into()));
    assert_eq!(decision.tallies[0].reason, Reason::TooSmall);
}

#[test]
fn u5_the_named_volume_is_missing() {
    let c = bound_claim("c", "v");
    let c = claim("c", |claim| (claim.volume_name, claim.status) = (c.volume_name, c.status));
    check_claim(&mut ListCluster::new([], []), &c, &["claim c Pending -modes -capacity", "done"]);
}

#[test]
fn u6_and_u7_the_named_volume_is_checked() {
    type Change = fn(&mut bindery_core::Volume);
    let rows: [(Change, bool); 8] = [
        (|v| v.deleting = true, false),
        (|v| v.capacity = Some(gi(4)), false),
        (|v| v.class = "gold".into(), false),
        (|v| v.attributes_class = Some("fast".into()), false),
        (|v| v.mode = bindery_core::VolumeMode::Block, false),
        (|v| v.access_modes = vec![AccessMode::ReadOnlyMany], false),
        // Neither phase nor node affinity counts.
        (|v| v.phase = bindery_core::VolumePhase::Failed, true),
        (|v| v.node_affinity = true, true),
    ];
    let c = claim("c", |c| c.volume_name = Some("v".into()));
    for (change, binds) in rows {
        let decision =
            decide(&mut ListCluster::new([volume("v", change)], []), Subject::SyncClaim(c.clone().into()));
        let lines = crate::lines::decision(&decision);
        if binds {
            assert_eq!(lines[0], "reserve v for c mark");
        } else {
            assert_eq!(lines, ["Warning VolumeMismatch on c", "done"]);
        }
    }
}

/// Upstream up to v1.37 rounds both to 64 bits here, where these two overflow to the same number.
#[test]
fn u6_compares_capacities_beyond_63_bits() {
    let exa = |number: u64| bindery_core::Quantity::bytes(number << 60);
    let c = |size| {
        claim("c", |c| {
            c.volume_name = Some("v".into());
            c.request = exa(size);
        })
    };
    let cluster = || ListCluster::new([volume("v", |v| v.capacity = Some(exa(9)))], []);
    let mismatch = ["Warning VolumeMismatch on c", "done"];
    check_claim(&mut cluster(), &c(10), &mismatch);
    let decision = decide(&mut cluster(), Subject::SyncClaim(c(9).into()));
    assert_eq!(crate::lines::decision(&decision)[0], "reserve v for c mark");
}

#[test]
fn u8_pointers_that_meet_bind_unchecked() {
    let unfit = volume("v", |v| {
        v.claim_ref = bound_to("c");
        v.capacity = Some(gi(1));
        v.deleting = true;
    });
    let c = claim("c", |c| c.volume_name = Some("v".into()));
    let expected = ["volume v Bound", "bind c to v", "claim c Bound +RWO capacity=1Gi", "done"];
    check_claim(&mut ListCluster::new([unfit], []), &c, &expected);
}

#[test]
fn u9_and_u10_the_named_volume_is_of_another_claim() {
    let mut cluster = ListCluster::new([volume("v", |v| v.claim_ref = bound_to("d"))], []);
    let by_user = claim("c", |c| {
        c.volume_name = Some("v".into());
        c.status.phase = ClaimPhase::Bound;
    });
    check_claim(&mut cluster, &by_user, &["Warning FailedBinding on c", "claim c Pending", "done"]);
    let by_binder = claim("c", |c| {
        c.volume_name = Some("v".into());
        c.annotations.bound_by_controller = true;
    });
    let namesake = volume("v", |v| {
        v.claim_ref = bound_to("c");
        v.claim_ref.as_mut().expect("just set").uid = Some("uid-old".into());
    });
    let mut former = ListCluster::new([namesake], []);
    check_claim(&mut former, &by_user, &["Warning FailedBinding on c", "claim c Pending", "done"]);
    let decision = decide(&mut cluster, Subject::SyncClaim(by_binder.into()));
    assert_eq!(decision.steps.len(), 1);
    let failure = bindery_core::Failure::VolumeOfOther("v".into());
    assert_eq!(decision.outcome, bindery_core::Outcome::Failed(failure));
}

#[test]
fn b1_b2_b5_a_bound_claim_is_lost() {
    let lost = |event| [event, "done"].map(str::to_owned);
    let mut without_name = bound_claim("c", "v");
    without_name.volume_name = None;
    let b5 = |v: &mut bindery_core::Volume| v.claim_ref = reserved_for("c");
    let of_namesake = |v: &mut bindery_core::Volume| {
        v.claim_ref = bound_to("c");
        v.claim_ref.as_mut().expect("just set").uid = Some("uid-old".into());
    };
    let rows = [
        (ListCluster::new([], []), without_name, "Warning ClaimLost on c"),
        (ListCluster::new([], []), bound_claim("c", "v"), "Warning ClaimLost on c"),
        (
            ListCluster::new([volume("v", |v| v.claim_ref = bound_to("d"))], []),
            bound_claim("c", "v"),
            "Warning ClaimMisbound on c",
        ),
        (ListCluster::new([volume("v", b5)], []), bound_claim("c", "v"), "Warning ClaimMisbound on c"),
        (
            ListCluster::new([volume("v", of_namesake)], []),
            bound_claim("c", "v"),
            "Warning ClaimMisbound on c",
        ),
    ];
    for (mut cluster, mut c, event) in rows {
        let [event, done] = lost(event);
        check_claim(&mut cluster, &c, &["claim c Lost -modes -capacity", &event, &done]);
        c.status.phase = ClaimPhase::Lost;
        check_claim(&mut cluster, &c, &["done"]);
    }
}

#[test]
fn b3_and_b4_a_bound_claim_is_repaired() {
    let c = bound_claim("c", "v");
    let expected = ["reserve v for c mark", "volume v Bound", "done"];
    check_claim(&mut ListCluster::new([volume("v", |_| {})], []), &c, &expected);

    let whole = volume("v", |v| {
        v.claim_ref = bound_to("c");
        v.phase = bindery_core::VolumePhase::Bound;
    });
    check_claim(&mut ListCluster::new([whole.clone()], []), &c, &["done"]);
    let mut lost = c.clone();
    lost.status.phase = ClaimPhase::Lost;
    check_claim(&mut ListCluster::new([whole.clone()], []), &lost, &["claim c Bound", "done"]);
    // The capacity of a Bound claim stays: the file system may lag the device.
    let grown = volume("v", |v| {
        *v = whole;
        v.capacity = Some(gi(9));
    });
    check_claim(&mut ListCluster::new([grown], []), &c, &["done"]);
}

/// Identity is the UID: a claimRef that names the claim wrongly is written anew.
#[test]
fn b4_a_claim_ref_with_the_right_uid_and_a_wrong_name_is_corrected() {
    let misnamed = volume("v", |v| {
        v.claim_ref = bound_to("d");
        v.claim_ref.as_mut().expect("just set").uid = Some("uid-c".into());
        v.phase = bindery_core::VolumePhase::Bound;
    });
    check_claim(
        &mut ListCluster::new([misnamed], []),
        &bound_claim("c", "v"),
        &["reserve v for c mark", "done"],
    );
}

#[test]
fn step_0_updates_the_migration_annotation() {
    let c = claim("c", |c| {
        c.annotations.beta_storage_provisioner = Some("kubernetes.io/gce-pd".into());
        c.volume_name = Some("v".into());
    });
    let mut cluster = ListCluster::new([], []);
    cluster.migration = Migration::On("pd.csi.storage.gke.io".into());
    check_claim(&mut cluster, &c, &["annotate claim c migrated-to=pd.csi.storage.gke.io", "done"]);
    assert_eq!(cluster.asked[0], "migration kubernetes.io/gce-pd");
    let both = claim("c", |both| {
        *both = c.clone();
        both.annotations.storage_provisioner = Some("pd.csi.storage.gke.io".into());
    });
    decide(&mut cluster, Subject::SyncClaim(both.into()));
    assert_eq!(cluster.asked[0], "migration pd.csi.storage.gke.io");
    cluster.migration = Migration::Untranslatable;
    check_claim(&mut cluster, &c, &["done"]);
    cluster.migration = Migration::Off;
    let rolled_back = claim("c", |changed| {
        *changed = c;
        changed.annotations.migrated_to = Some("pd.csi.storage.gke.io".into());
    });
    check_claim(&mut cluster, &rolled_back, &["annotate claim c -migrated-to", "done"]);
}

#[test]
fn an_unreadable_object_is_not_absent() {
    let mut cluster = ListCluster::new([], []);
    cluster.unreadable = vec!["v", "gold"];
    let named = claim("c", |c| c.volume_name = Some("v".into()));
    let failure = ["Warning Unreadable on c", "failed: volume v: spec.capacity is no quantity"];
    check_claim(&mut cluster, &named, &failure);
    check_claim(&mut cluster, &bound_claim("c", "v"), &failure);
    let with_class = claim("c", |c| c.class = Some("gold".into()));
    let failure = ["Warning Unreadable on c", "failed: class gold: spec.capacity is no quantity"];
    check_claim(&mut cluster, &with_class, &failure);
}
