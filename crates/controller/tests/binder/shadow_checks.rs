//! What the guard says about the decisions of shadows, and what shadows do beside claims and volumes.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Configuration, Mode, Parts, Settings, ShadowPart};
use bindery_core::{
    Action, Cluster, Decision, EngineFault, Follows, Message, Outcome, Request, Step, Subject, Volume,
    VolumePhase,
};
use bindery_engine::DefaultEngine;
use bindery_kit::{SameZone, policy};
use bindery_policy::{Difference, DifferenceKind};

use crate::disk::Disk;
use crate::double::{Scripted, binder_of, claim, holding, parts, volume};
use crate::labelling::{self, local, use_claims};
use crate::operating::{released, run_during};
use crate::policies::{in_zone, key, reserves_v};
use crate::reclaiming::{bound, pair, sync};
use crate::shadowing::{answered, latest, matching, shadow};

#[tokio::test]
async fn what_the_guard_refuses_a_shadow_is_seen() {
    let double = holding([Volume { class: "other".into(), ..volume("v") }], [claim("c")]);
    let engine = shadow("engine", ShadowPart::Engine(Arc::new(reserves_v())));
    let configuration = Configuration { shadows: vec![engine.clone()], ..Configuration::default() };
    let binder = binder_of(Parts { configuration, ..parts(&double, DefaultEngine) });
    assert_eq!(binder.sync(&key("c")).await.result, Ok(()));
    assert_eq!(answered(&engine, 1).await, (1, 0));
    let Difference { kind, active, shadow, .. } = latest(&engine);
    assert_eq!(kind, DifferenceKind::Refused);
    assert_eq!((&*active.answer, &*shadow.answer), ("waits", "what the guard refuses"));
    assert!(shadow.reason.contains("(G3 ") && shadow.reason.contains("\"other\""), "{}", shadow.reason);
    assert_eq!(double.writes(), []);
}

#[tokio::test]
async fn a_shadow_is_refused_the_release_of_a_volume_whose_claim_is_there() {
    let double = holding([bound("v", "c")], [pair("c", "v", "true")]);
    let releases = Scripted(|request: &Request, _: &mut dyn Cluster| {
        let Subject::SyncVolume(volume) = &request.subject else { panic!("{request:?}") };
        let (volume, phase, message) = (volume.target(), VolumePhase::Released, Message::Empty);
        let action = Action::SetVolumePhase { volume, phase, message };
        Ok(Decision::new(vec![Step { action, follows: Follows::Success }], Outcome::Done))
    });
    let engine = shadow("engine", ShadowPart::Engine(Arc::new(releases)));
    let configuration = Configuration { shadows: vec![engine.clone()], ..Configuration::default() };
    let binder = binder_of(Parts { configuration, ..parts(&double, DefaultEngine) });
    assert_eq!(sync(&binder, "v").await.result, Ok(()));
    assert_eq!(answered(&engine, 1).await, (1, 0));
    let Difference { kind, shadow, .. } = latest(&engine);
    assert_eq!(kind, DifferenceKind::Refused);
    assert!(shadow.reason.contains("its claim is there"), "{}", shadow.reason);
}

#[tokio::test(start_paused = true)]
async fn that_an_operation_would_go_on_otherwise_is_seen() {
    let double = holding([released()], []);
    let disk = Disk::new(&double);
    let ends = Scripted(|request: &Request, cluster: &mut dyn Cluster| match &request.subject {
        Subject::SyncVolumeOperation(_) => Ok(Decision::done()),
        _ => bindery_engine::decide(request, cluster).map_err(EngineFault::from),
    });
    let engine = shadow("engine", ShadowPart::Engine(Arc::new(ends)));
    let same = shadow("same", ShadowPart::Engine(Arc::new(DefaultEngine)));
    let shadows = vec![engine.clone(), same.clone()];
    let configuration = Configuration { shadows, ..disk.configuration() };
    let binder = binder_of(Parts { configuration, ..parts(&double, DefaultEngine) });
    double.watch(binder.intake(), Duration::ZERO);
    run_during(&binder, async { double.until("the volume is gone", || !double.has_volume("v1")).await })
        .await;
    // The volume, and three steps.
    assert_eq!(answered(&engine, 4).await, (4, 0));
    assert_eq!(engine.metrics.differences(DifferenceKind::OtherStep), 3);
    let Difference { object, active, shadow, .. } = latest(&engine);
    assert_eq!((&*object, &*active.answer), ("pv v1", "deletes it, then it ends"));
    assert_eq!(&*shadow.answer, "then it ends");
    assert_eq!((answered(&same, 4).await, same.metrics.latest()), ((4, 0), vec![]));
}

#[tokio::test]
async fn that_the_scheduler_might_choose_among_others_is_seen() {
    let double = holding([local("a1", 1), in_zone(local("b1", 1), "b")], [labelling::claim("c")]);
    let zone = matching(policy("zone", SameZone));
    let settings = Settings { mode: Mode::Steer, ..Settings::default() };
    let configuration = Configuration { shadows: vec![zone.clone()], ..Configuration::default() };
    let binder = binder_of(Parts { settings, configuration, ..parts(&double, DefaultEngine) });
    labelling::deliver_class(&binder);
    use_claims(&binder, &["c"]);
    assert_eq!(binder.sync(&key("c")).await.result, Ok(()));
    assert_eq!(answered(&zone, 1).await, (1, 0));
    let Difference { object, kind, active, shadow, .. } = latest(&zone);
    assert_eq!((&*object, kind), ("pvc ns/c", DifferenceKind::OtherLabels));
    assert_eq!(&*active.answer, "offers the scheduler a1, b1");
    let why = "policy zone rejects volume b1: its zone is b, not a";
    assert_eq!((&*shadow.answer, &*shadow.reason), ("offers the scheduler a1", why));
    assert_eq!(labelling::labelled(&double, "c"), labelling::names(&["a1", "b1"]));
}
