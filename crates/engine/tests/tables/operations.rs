//! Operations, step by step.

use bindery_core::{
    Claim, Decision, FINALIZER_IN_TREE, Migration, Operation, OperationKind, Plugin, PluginMatch, Pod, Point,
    Progress, ReclaimPolicy, Request, Returned, Stop, Subject, Volume, VolumePhase,
};

use crate::cluster::ListCluster;
use crate::{bound_claim, bound_to, claim, class, decide, lines, volume};

const PLUGIN: &str = "kubernetes.io/mock";

fn plugin() -> Plugin {
    Plugin { name: PLUGIN.into(), provisions: true, deletes: true, recycles: true, mount_options: false }
}

fn progress<T>(
    kind: OperationKind,
    plugin: &str,
    object: T,
    point: Point,
    returned: Returned,
) -> Progress<T> {
    let operation = Operation { kind, plugin: plugin.into(), uid: "uid".into() };
    Progress { operation, object, fresh: None, point, returned }
}

fn failed() -> Returned {
    Returned::Failed("boom".into())
}

#[track_caller]
fn check(cluster: &mut ListCluster, subject: Subject, expected: &[&str]) -> Decision {
    let decision = decide(cluster, subject);
    assert_eq!(lines::decision(&decision), expected);
    decision
}

mod external {
    use super::*;

    fn step(claim: &Claim, point: Point, returned: Returned) -> Subject {
        let kind = OperationKind::ProvisionExternal;
        Subject::SyncClaimOperation(progress(kind, "vendor.example/disk", claim.clone(), point, returned))
    }

    #[test]
    fn the_provisioner_is_named_and_waited_for() {
        let mut cluster = ListCluster::new([], []);
        let c = claim("c", |_| {});
        let expected = ["annotate claim c provisioner=vendor.example/disk", "continue at Annotated"];
        check(&mut cluster, step(&c, Point::Start, Returned::Success), &expected);
        let waits = ["Normal ExternalProvisioning on c", "done"];
        check(&mut cluster, step(&c, Point::Annotated, Returned::Success), &waits);
        let expected = ["Warning ProvisioningFailed on c!", "failed: boom"];
        check(&mut cluster, step(&c, Point::Annotated, failed()), &expected);
        // The beta key is left alone where the other is right.
        let named = claim("c", |c| c.annotations.storage_provisioner = Some("vendor.example/disk".into()));
        check(&mut cluster, step(&named, Point::Start, Returned::Success), &waits);
    }

    #[test]
    fn a_migrated_plugin_is_known_by_its_driver() {
        let mut cluster = ListCluster::new([], []);
        cluster.migration = Migration::On("csi.example".into());
        let c = claim("c", |_| {});
        let expected =
            ["annotate claim c provisioner=csi.example migrated-to=csi.example", "continue at Annotated"];
        check(&mut cluster, step(&c, Point::Start, Returned::Success), &expected);
        cluster.migration = Migration::Untranslatable;
        let decision = decide(&mut cluster, step(&c, Point::Start, Returned::Success));
        assert_eq!(lines::decision(&decision)[0], "Warning ProvisioningFailed on c!");
    }
}

mod provision {
    use super::*;

    fn gold(change: impl FnOnce(&mut Claim)) -> Claim {
        claim("c", |c| {
            c.class = Some("gold".into());
            c.annotations.storage_provisioner = Some(PLUGIN.into());
            change(c);
        })
    }

    fn cluster() -> ListCluster {
        let mut cluster = ListCluster::new([], []);
        cluster.classes = vec![class("gold", |c| c.provisioner = PLUGIN.into())];
        cluster.plugins = vec![plugin()];
        cluster
    }

    fn step(claim: &Claim, point: Point, returned: Returned) -> Subject {
        let kind = OperationKind::Provision;
        Subject::SyncClaimOperation(progress(kind, PLUGIN, claim.clone(), point, returned))
    }

    #[test]
    fn the_plugin_is_called_and_the_volume_created() {
        let (mut cluster, c) = (cluster(), gold(|_| {}));
        let start = ["call kubernetes.io/mock Provision", "continue at Provisioned"];
        check(&mut cluster, step(&c, Point::Start, Returned::Success), &start);
        let reads = ["volume live pvc-uid-c", "class gold", "ready kubernetes.io/mock Provision"];
        assert_eq!(cluster.asked, reads);
        let created =
            ["create pvc-uid-c class=gold plugin=kubernetes.io/mock", "continue at Created { attempt: 1 }"];
        check(&mut cluster, step(&c, Point::Provisioned, Returned::Success), &created);
        for returned in [Returned::Success, Returned::AlreadyExists] {
            let expected = ["Normal ProvisioningSucceeded on c", "done"];
            check(&mut cluster, step(&c, Point::Created { attempt: 2 }, returned), &expected);
        }
    }

    #[test]
    fn the_provisioner_is_named_first() {
        let (mut cluster, c) = (cluster(), gold(|c| c.annotations.storage_provisioner = None));
        let expected = ["annotate claim c provisioner=kubernetes.io/mock", "continue at Annotated"];
        check(&mut cluster, step(&c, Point::Start, Returned::Success), &expected);
        let c = gold(|_| {});
        let expected = ["call kubernetes.io/mock Provision", "continue at Provisioned"];
        check(&mut cluster, step(&c, Point::Annotated, Returned::Success), &expected);
        check(&mut cluster, step(&c, Point::Annotated, failed()), &["failed: boom"]);
    }

    #[test]
    fn nothing_is_done_twice() {
        let mut cluster = cluster();
        cluster.volumes = vec![volume("pvc-uid-c", |_| {})];
        check(&mut cluster, step(&gold(|_| {}), Point::Start, Returned::Success), &["done"]);
        cluster.live_error = Some("timeout");
        check(&mut cluster, step(&gold(|_| {}), Point::Start, Returned::Success), &["failed: timeout"]);
    }

    #[test]
    fn an_obstacle_to_provisioning_gets_an_event() {
        let c = gold(|_| {});
        let told = |cluster: &mut ListCluster, claim: &Claim, failure: &str| {
            let decision = decide(cluster, step(claim, Point::Start, Returned::Success));
            let [event, outcome] = &lines::decision(&decision)[..] else { panic!("{decision:?}") };
            assert_eq!(event, "Warning ProvisioningFailed on c!");
            assert!(outcome.contains(failure), "{outcome}");
        };
        told(&mut cluster(), &gold(|c| c.data_source = true), "datasource");
        told(&mut cluster(), &gold(|c| c.annotations.selected_node = Some("gone".into())), "\"gone\"");
        let mut refusing = cluster();
        refusing.not_ready = Some("no backend");
        told(&mut refusing, &c, "no backend");
        let mut options = cluster();
        options.classes[0].mount_options = true;
        told(&mut options, &c, "Mount options");
        let mut classless = cluster();
        classless.classes.clear();
        told(&mut classless, &c, "not found");
    }

    #[test]
    fn after_a_failure_the_scheduler_chooses_again() {
        let mut cluster = cluster();
        let expected = ["Warning ProvisioningFailed on c!", "failed: boom"];
        check(&mut cluster, step(&gold(|_| {}), Point::Provisioned, failed()), &expected);
        let c = gold(|c| c.annotations.selected_node = Some("node1".into()));
        let expected = ["remove node of c?", "Warning ProvisioningFailed on c!", "failed: boom"];
        check(&mut cluster, step(&c, Point::Provisioned, failed()), &expected);
    }

    #[test]
    fn a_volume_is_created_again_four_times_and_then_its_asset_deleted() {
        let (mut cluster, c) = (cluster(), gold(|_| {}));
        let again = [
            "wait 10000 ms",
            "create pvc-uid-c class=gold plugin=kubernetes.io/mock",
            "continue at Created { attempt: 5 }",
        ];
        check(&mut cluster, step(&c, Point::Created { attempt: 4 }, failed()), &again);
        let clean = [
            "Warning ProvisioningFailed on c",
            "call kubernetes.io/mock Delete",
            "continue at CleanedUp { attempt: 1 }",
        ];
        check(&mut cluster, step(&c, Point::Created { attempt: 5 }, failed()), &clean);
        let point = Point::CleanedUp { attempt: 1 };
        check(&mut cluster, step(&c, point, Returned::Success), &["done"]);
        let again =
            ["wait 10000 ms", "call kubernetes.io/mock Delete", "continue at CleanedUp { attempt: 2 }"];
        check(&mut cluster, step(&c, point, failed()), &again);
        // It was created meanwhile, or the read failed.
        let orphan = ["Warning ProvisioningCleanupFailed on c", "done"];
        cluster.live_error = Some("timeout");
        check(&mut cluster, step(&c, point, failed()), &orphan);
        cluster.live_error = None;
        check(&mut cluster, step(&c, Point::CleanedUp { attempt: 5 }, failed()), &orphan);
    }

    #[test]
    fn an_asset_is_not_deleted_while_its_volume_may_exist() {
        let (mut cluster, c) = (cluster(), gold(|_| {}));
        let last = step(&c, Point::Created { attempt: 5 }, failed());
        let orphan = ["Warning ProvisioningFailed on c", "Warning ProvisioningCleanupFailed on c", "done"];
        cluster.live_error = Some("timeout");
        let decision = check(&mut cluster, last.clone(), &orphan);
        assert_eq!(decision.requeue_after_ms, Some(15_000));
        cluster.live_error = None;
        cluster.plugins[0].deletes = false;
        check(&mut cluster, last.clone(), &orphan);
        cluster.live_volumes = Some(vec![volume("pvc-uid-c", |_| {})]);
        check(&mut cluster, last, &["Normal ProvisioningSucceeded on c", "done"]);
    }
}

mod delete {
    use super::*;

    fn released(change: impl FnOnce(&mut Volume)) -> Volume {
        volume("v", |v| {
            v.claim_ref = bound_to("c");
            v.phase = VolumePhase::Released;
            v.policy = ReclaimPolicy::Delete;
            change(v);
        })
    }

    fn cluster(volume: &Volume) -> ListCluster {
        let mut cluster = ListCluster::new([volume.clone()], []);
        cluster.plugins = vec![plugin()];
        cluster
    }

    fn step(volume: &Volume, point: Point, returned: Returned) -> Subject {
        let kind = OperationKind::Delete;
        let mut progress = progress(kind, "", volume.clone(), point, returned);
        progress.fresh = Some(volume.clone());
        Subject::SyncVolumeOperation(progress)
    }

    #[test]
    fn asset_finalizer_and_volume_go_in_this_order() {
        let v = released(|_| {});
        let mut cluster = cluster(&v);
        let call = ["call kubernetes.io/mock Delete", "continue at Deleted"];
        check(&mut cluster, step(&v, Point::Start, Returned::Success), &call);
        let reads = ["plugin for v", "volume live v", "claim overlay c", "ready kubernetes.io/mock Delete"];
        assert_eq!(cluster.asked, reads);
        check(&mut cluster, step(&v, Point::Deleted, Returned::Success), &["delete v at 1?", "done"]);

        // The finalizer is removed from the volume as it is now.
        let fresh = released(|v| {
            v.finalizers.push(FINALIZER_IN_TREE.into());
            v.version = "7".into();
        });
        cluster.live_volumes = Some(vec![fresh.clone()]);
        let expected = ["annotate volume v -in-tree", "continue at FinalizerRemoved"];
        let decision = check(&mut cluster, step(&v, Point::Deleted, Returned::Success), &expected);
        let bindery_core::Action::AnnotateVolume { volume, .. } = &decision.steps[0].action else { panic!() };
        assert_eq!(volume.version, "7".into());
        let expected = ["delete v at 7?", "done"];
        check(&mut cluster, step(&fresh, Point::FinalizerRemoved, Returned::Success), &expected);
    }

    #[test]
    fn the_deleter_is_found_by_name_then_by_source() {
        type Change = fn(&mut Volume);
        let by = |name: &'static str| move |v: &mut Volume| v.annotations.provisioned_by = Some(name.into());
        let outcome = |change: &dyn Fn(&mut Volume), plugins: Vec<Plugin>| {
            let v = released(|v| change(v));
            let mut cluster = cluster(&v);
            cluster.plugins = plugins;
            lines::decision(&decide(&mut cluster, step(&v, Point::Start, Returned::Success))).swap_remove(0)
        };
        let csi: Change = |v| v.source = "csi".into();
        let migrated: Change = |v| v.annotations.migrated_to = Some("".into());
        let call = "call kubernetes.io/mock Delete";
        assert_eq!(outcome(&by(PLUGIN), vec![plugin()]), call);
        assert_eq!(outcome(&by(""), vec![plugin()]), call);
        assert_eq!(outcome(&by("vendor.example/disk"), vec![plugin()]), "done");
        assert_eq!(outcome(&csi, vec![plugin()]), "done");
        assert_eq!(outcome(&migrated, vec![plugin()]), "done");
        let missing = "volume v Failed: no volume plugin matched name: kubernetes.io/gone";
        assert_eq!(outcome(&by("kubernetes.io/gone"), vec![plugin()]), missing);
        let message = "volume v Failed: error getting deleter volume plugin for volume \"v\": ";
        assert_eq!(outcome(&|_| {}, vec![]), format!("{message}no volume plugin matched"));
        let unable = vec![Plugin { deletes: false, ..plugin() }];
        assert_eq!(outcome(&|_| {}, unable), format!("{message}no deletable volume plugin matched"));
    }

    #[test]
    fn without_deleter_the_volume_fails_but_nothing_backs_off() {
        let v = released(|_| {});
        let mut cluster = ListCluster::new([v.clone()], []);
        let decision = decide(&mut cluster, step(&v, Point::Start, Returned::Success));
        let expected = ["Warning VolumeFailedDelete on v", "done"];
        assert_eq!(lines::decision(&decision)[1..], expected);
        assert_eq!(cluster.asked, ["plugin for v"]);
        let already = released(|v| v.phase = VolumePhase::Failed);
        check(&mut cluster, step(&already, Point::Start, Returned::Success), &["done"]);
    }

    #[test]
    fn a_volume_that_is_gone_or_in_use_again_is_left_alone() {
        let v = released(|_| {});
        let start = step(&v, Point::Start, Returned::Success);
        let mut gone = cluster(&v);
        gone.live_volumes = Some(Vec::new());
        check(&mut gone, start.clone(), &["done"]);
        let mut unknown = cluster(&v);
        unknown.live_error = Some("timeout");
        assert_eq!(check(&mut unknown, start.clone(), &["done"]).requeue_after_ms, Some(15_000));
        for (claim, done) in [
            (bound_claim("c", "v"), true),
            (claim("c", |_| {}), true),
            (bound_claim("c", "w"), false),
            (claim("c", |c| c.uid = "uid-new".into()), false),
        ] {
            let mut cluster = cluster(&v);
            cluster.claims = vec![claim];
            assert_eq!(decide(&mut cluster, start.clone()).steps.is_empty(), done);
        }
        let mut unreadable = cluster(&v);
        unreadable.unreadable = vec!["c"];
        let expected = ["Warning Unreadable on v", "failed: claim ns/c: spec.capacity is no quantity"];
        check(&mut unreadable, start, &expected);
    }

    #[test]
    fn a_failure_gets_one_event_and_backs_off() {
        let v = released(|_| {});
        let mut cluster = cluster(&v);
        let expected = ["volume v Failed: boom", "Warning VolumeFailedDelete on v", "failed: boom"];
        check(&mut cluster, step(&v, Point::Deleted, failed()), &expected);
        let already = released(|v| v.phase = VolumePhase::Failed);
        check(&mut cluster, step(&already, Point::Deleted, failed()), &["failed: boom"]);
        let in_use = Returned::InUse("mounted on node1".into());
        let expected = ["Normal VolumeDelete on v", "failed: mounted on node1"];
        check(&mut cluster, step(&v, Point::Deleted, in_use), &expected);
        cluster.not_ready = Some("no backend");
        let expected = [
            "volume v Failed: failed to create deleter for volume \"v\": no backend",
            "Warning VolumeFailedDelete on v",
            "failed: no backend",
        ];
        check(&mut cluster, step(&v, Point::Start, Returned::Success), &expected);
    }

    #[test]
    fn a_finalizer_that_stays_fails_the_operation() {
        let v = released(|_| {});
        let mut cluster = cluster(&v);
        let failed_with = |error: &str| {
            [
                "volume v Failed: ".to_owned() + error,
                "Warning VolumeFailedDelete on v".into(),
                "failed: ".to_owned() + error,
            ]
        };
        let decision = decide(&mut cluster, step(&v, Point::FinalizerRemoved, failed()));
        assert_eq!(
            lines::decision(&decision),
            failed_with("persistent volume controller can't update finalizer: boom")
        );
        cluster.live_error = Some("timeout");
        let decision = decide(&mut cluster, step(&v, Point::Deleted, Returned::Success));
        assert_eq!(lines::decision(&decision), failed_with("timeout"));
        cluster.live_error = None;
        cluster.live_volumes = Some(Vec::new());
        let decision = decide(&mut cluster, step(&v, Point::Deleted, Returned::Success));
        assert_eq!(lines::decision(&decision), failed_with("persistentvolumes \"v\" not found"));
    }
}

mod recycle {
    use super::*;

    fn released(change: impl FnOnce(&mut Volume)) -> Volume {
        volume("v", |v| {
            v.claim_ref = bound_to("c");
            v.phase = VolumePhase::Released;
            v.policy = ReclaimPolicy::Recycle;
            change(v);
        })
    }

    fn cluster(volume: &Volume) -> ListCluster {
        let mut cluster = ListCluster::new([volume.clone()], []);
        cluster.plugins = vec![plugin()];
        cluster
    }

    fn step(volume: &Volume, point: Point, returned: Returned) -> Subject {
        let mut progress = progress(OperationKind::Recycle, "", volume.clone(), point, returned);
        progress.fresh = Some(volume.clone());
        Subject::SyncVolumeOperation(progress)
    }

    #[test]
    fn a_scrubbed_volume_is_offered_again() {
        let v = released(|_| {});
        let mut cluster = cluster(&v);
        let call = ["call kubernetes.io/mock Recycle", "continue at Recycled"];
        check(&mut cluster, step(&v, Point::Start, Returned::Success), &call);
        let reads = [
            "volume live v",
            "claim overlay c",
            "pods c",
            "claim overlay c",
            "plugin for v",
            "ready kubernetes.io/mock Recycle",
        ];
        assert_eq!(cluster.asked, reads);
        let expected = ["Normal VolumeRecycled on v", "unbind v Uid?", "volume v Available?", "done"];
        check(&mut cluster, step(&v, Point::Recycled, Returned::Success), &expected);
        let by_binder = released(|v| v.annotations.bound_by_controller = true);
        let expected = ["Normal VolumeRecycled on v", "unbind v Whole?", "volume v Available?", "done"];
        check(&mut cluster, step(&by_binder, Point::Recycled, Returned::Success), &expected);
    }

    #[test]
    fn a_failure_gets_an_event_and_never_backs_off() {
        let v = released(|_| {});
        let mut cluster = cluster(&v);
        let expected = ["volume v Failed: Recycle failed: boom?", "Warning VolumeFailedRecycle on v", "done"];
        let decision = check(&mut cluster, step(&v, Point::Recycled, failed()), &expected);
        assert_eq!(decision.requeue_after_ms, Some(15_000));
        cluster.not_ready = Some("boom");
        check(&mut cluster, step(&v, Point::Start, Returned::Success), &expected);
        let expected = [
            "volume v Failed: No recycler plugin found for the volume!?",
            "Warning VolumeFailedRecycle on v",
            "done",
        ];
        cluster.plugin_match = Some(PluginMatch::Several(vec!["a".into(), "b".into()]));
        check(&mut cluster, step(&v, Point::Start, Returned::Success), &expected);
        let already = released(|v| v.phase = VolumePhase::Failed);
        cluster.live_volumes = Some(vec![already.clone()]);
        check(&mut cluster, step(&already, Point::Start, Returned::Success), &["done"]);
    }

    #[test]
    fn pods_that_still_run_are_waited_for() {
        let v = released(|_| {});
        let mut cluster = cluster(&v);
        let pod = |name: &str, terminated| Pod { name: name.into(), scheduled: true, terminated };
        cluster.pods = Ok(vec![pod("p", false), pod("a", false), pod("a", false), pod("z", true)]);
        let expected = ["Normal VolumeFailedRecycle on v", "done"];
        let decision = check(&mut cluster, step(&v, Point::Start, Returned::Success), &expected);
        let bindery_core::Action::Emit(event) = &decision.steps[0].action else { panic!() };
        assert_eq!(event.kind.to_string(), "Volume is used by pods: ns/a,ns/p");
        // They are those of a new claim of that name.
        cluster.claims = vec![claim("c", |c| c.uid = "uid-new".into())];
        let decision = decide(&mut cluster, step(&v, Point::Start, Returned::Success));
        assert_eq!(decision.steps.len(), 1);
        assert_eq!(lines::decision(&decision)[1], "continue at Recycled");
        cluster.pods = Err("the index is gone".into());
        check(&mut cluster, step(&v, Point::Start, Returned::Success), &["done"]);
    }
}

#[test]
fn a_point_of_another_operation_is_a_fault_of_the_host() {
    let nonsense = |subject| {
        let request = Request { now: 0, subject };
        let stop = bindery_engine::decide(&request, &mut ListCluster::new([], [])).unwrap_err();
        assert!(matches!(stop, Stop::Nonsense(_)), "{stop:?}");
    };
    for kind in [OperationKind::Delete, OperationKind::Recycle] {
        let wrong = progress(kind, "", claim("c", |_| {}), Point::Start, Returned::Success);
        nonsense(Subject::SyncClaimOperation(wrong));
        let wrong = progress(kind, "", volume("v", |_| {}), Point::Provisioned, Returned::Success);
        nonsense(Subject::SyncVolumeOperation(wrong));
    }
    for kind in [OperationKind::Provision, OperationKind::ProvisionExternal] {
        let wrong = progress(kind, "", volume("v", |_| {}), Point::Start, Returned::Success);
        nonsense(Subject::SyncVolumeOperation(wrong));
        let wrong = progress(kind, "", claim("c", |_| {}), Point::Recycled, Returned::Success);
        nonsense(Subject::SyncClaimOperation(wrong));
    }
}
