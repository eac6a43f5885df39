//! The loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bindery_controller::{Binder, EVENT_REFRESH, Parts, RETRY_BACKOFF_MAX, Settings, WriteError};
use bindery_core::{
    Action, BindingMode, Claim, ClaimPhase, Cluster, Decision, EngineFault, Outcome, Request, Step, Subject,
    Volume, VolumePhase,
};
use bindery_engine::DefaultEngine;
use bindery_store::{Delivery, Kind, Object, ObjectKey, Observed, Unreadable};
use futures::FutureExt as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::disk::Disk;
use crate::double::{Double, Scripted, binder, binder_of, claim, holding, parts, unsynced, volume};
use crate::operating::{key, released, run_during};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn the_loop_begins_when_the_lists_are_complete_and_ends_on_demand() {
    let double = holding([volume("v1")], [claim("c1")]);
    let binder = unsynced(&double, DefaultEngine);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&binder).run(shutdown.clone()));
    double.rest().await;
    assert_eq!(binder.metrics().decisions.get(), 0);
    Kind::ALL.into_iter().for_each(|kind| double.deliver_list(binder.intake(), kind, "1"));
    double.until("the claim is bound", || double.claim("c1").status.phase == ClaimPhase::Bound).await;
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_backs_off_and_holds_no_other_up() {
    let double = holding([volume("v1")], [claim("bad"), claim("good")]);
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let begin = Instant::now();
    let engine = Scripted(move |request: &Request, cluster: &mut dyn Cluster| match &request.subject {
        Subject::SyncClaim(claim) if &*claim.key.name == "bad" => {
            counted.fetch_add(1, Ordering::Relaxed);
            panic!("a bug in a native engine")
        }
        _ => bindery_engine::decide(request, cluster).map_err(EngineFault::from),
    });
    let binder = binder(&double, engine);
    run_during(&binder, async {
        double
            .until("the good one is bound", || double.claim("good").status.phase == ClaimPhase::Bound)
            .await;
        // 5 ms doubled eleven times, and then 15 s each: twenty seconds for the first thirteen tries.
        let tries = || tries.load(Ordering::Relaxed);
        double.until("it is tried thirteen times", || tries() == 13).await;
        let doubling = begin.elapsed();
        double.until("it is tried sixteen times", || tries() == 16).await;
        // By the virtual clock.
        assert_eq!((begin.elapsed() - doubling).as_secs(), 45);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_api_server_is_obeyed_when_it_asks_to_wait() {
    let double = holding([volume("v1")], [claim("c1")]);
    let retry_after = Duration::from_secs(7);
    double.fail_write(1, WriteError::Throttled { message: "busy".to_owned(), retry_after });
    let binder = binder(&double, DefaultEngine);
    run_during(&binder, async {
        double.until("the first write is refused", || double.writes().len() == 1).await;
        let refused = Instant::now();
        double.until("it is made again", || double.writes().len() > 1).await;
        assert!(refused.elapsed() >= retry_after);
        double.until("the claim is bound", || double.claim("c1").status.phase == ClaimPhase::Bound).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_bind_that_fails_backs_off_though_its_own_reservation_ends() {
    let double = holding([volume("v1")], [claim("c1")]);
    (1..=40).for_each(|nth| double.fail_write(nth, WriteError::Invalid("a policy denies it".to_owned())));
    let binder = binder(&double, DefaultEngine);
    run_during(&binder, async {
        let begin = Instant::now();
        double.until("the write fails twelve times", || double.writes().len() == 12).await;
        let twelve = begin.elapsed();
        double.until("the write fails once more", || double.writes().len() == 13).await;
        // By the virtual clock: 5 ms doubled.
        assert_eq!((twelve.as_secs(), begin.elapsed().as_secs()), (10, 20));
        // A corrected policy takes effect soon.
        double.until("the write fails for the last time", || double.writes().len() == 40).await;
        let mended = Instant::now();
        double.until("the claim is bound", || double.claim("c1").status.phase == ClaimPhase::Bound).await;
        assert!(mended.elapsed() <= RETRY_BACKOFF_MAX, "{:?}", mended.elapsed());
    })
    .await;
}

/// As where the webhook for one object is down.
#[tokio::test(start_paused = true)]
async fn a_write_that_keeps_breaking_is_told_at_its_claim_once_in_a_while() {
    let double = holding([volume("v1")], [claim("c1")]);
    let broken = WriteError::Broken { status: 500, message: "failed calling webhook".to_owned() };
    (1..=100).for_each(|nth| double.fail_write(nth, broken.clone()));
    let binder = binder(&double, DefaultEngine);
    let told = || double.notes_about(|regarding| *regarding.uid() == claim("c1").uid);
    run_during(&binder, async {
        let begin = Instant::now();
        double.until("ten seconds pass", || begin.elapsed() >= MINUTE / 6).await;
        assert_eq!(told(), [""; 0], "it may pass");
        double.until("a minute passes", || begin.elapsed() >= MINUTE).await;
        assert_eq!(told(), ["SyncFailed"]);
        double.until("the event would expire", || begin.elapsed() >= EVENT_REFRESH + MINUTE).await;
        assert_eq!(told(), ["SyncFailed"; 2]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_decisions_in_flight_end_and_gives_up_on_those_that_hang() {
    let double = holding([volume("v1")], [claim("c1")]);
    let binder = binder(&double, DefaultEngine);
    let held = Arc::clone(&double.gate).acquire_many_owned(1_000).await.unwrap();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&binder).run(shutdown.clone()));
    double.until("a write is asked for", || double.story().contains(&"reserve volume")).await;
    shutdown.cancel();
    running.await.unwrap();
    assert_eq!(double.writes().len(), 0);
    drop(held);

    // The next binder reads everything from the cluster.
    let binder = crate::double::binder(&double, DefaultEngine);
    assert_eq!(binder.store().picked_for("v1"), None);
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_runs_again_ends_what_the_one_before_abandoned() {
    let double = holding([volume("v2"), released()], [claim("c2")]);
    let disk = Disk::new(&double);
    let binder = binder_of(Parts { configuration: disk.configuration(), ..parts(&double, DefaultEngine) });
    double.watch(binder.intake(), Duration::ZERO);
    let writes = Arc::clone(&double.gate).acquire_many_owned(1_000).await.unwrap();
    let deletion = Arc::clone(&disk.gate).acquire_many_owned(1_000).await.unwrap();
    // The claim's first write hangs, and so does the plugin.
    run_during(&binder, double.rest()).await;
    assert_eq!(binder.operations_running(), 0);
    assert_eq!(binder.store().picked_for("v2"), None);
    assert_eq!(double.whole_story().iter().filter(|what| **what == "disk begins").count(), 1);

    // Between the loops nothing happens.
    drop((writes, deletion));
    let before = double.whole_story();
    double.rest().await;
    assert_eq!(double.whole_story(), before);

    // The next leader does not know the unfinished work.
    run_during(&binder, double.rest()).await;
    assert_eq!(double.claim("c2").status.phase, ClaimPhase::Bound);
    assert!(!double.has_volume("v1"));
    assert_eq!(binder.keys_waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_dropped_while_it_decides_is_started_anew() {
    let double = holding([released()], []);
    let disk = Disk::new(&double);
    let binder = binder_of(Parts { configuration: disk.configuration(), ..parts(&double, DefaultEngine) });
    double.watch(binder.intake(), Duration::ZERO);
    let reads = Arc::clone(&double.reads_gate).acquire_many_owned(1_000).await.unwrap();
    let operation = binder.sync(&key()).await.operations.pop().expect("the volume is to be deleted");
    let mut operation = binder.perform(operation).boxed();
    assert!((&mut operation).now_or_never().is_none());
    drop((operation, reads));
    run_during(&binder, double.rest()).await;
    assert!(!double.has_volume("v1"));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_was_abandoned_before_it_began_is_taken_by_the_next_loop() {
    let double = holding([volume("v1")], [claim("c1")]);
    let settings = Settings { shutdown_grace: Duration::ZERO, ..Settings::default() };
    let binder = binder_of(Parts { settings, ..parts(&double, DefaultEngine) });
    double.watch(binder.intake(), Duration::ZERO);
    let shutdown = CancellationToken::new();
    let mut run = Arc::clone(&binder).run(shutdown.clone()).boxed();
    // The loop takes the keys, and ends before their tasks are polled.
    assert!((&mut run).now_or_never().is_none());
    shutdown.cancel();
    assert!((&mut run).now_or_never().is_none());
    run.await;
    assert_eq!(double.whole_story(), [""; 0]);
    run_during(&binder, double.rest()).await;
    assert_eq!(double.claim("c1").status.phase, ClaimPhase::Bound);
}

#[tokio::test(start_paused = true)]
async fn a_binder_that_does_not_run_keeps_nothing_for_its_loop() {
    let pending = |name| Volume { phase: VolumePhase::Pending, ..volume(name) };
    let double = holding(["v1", "v2"].map(pending), []);
    let binder = binder(&double, DefaultEngine);
    assert_eq!(binder.keys_waiting(), 0);
    // The writes of both claims fail, so writes are blocked, and the loop ends.
    (1..=100).for_each(|nth| double.fail_write(nth, WriteError::Failed("the line is dead".to_owned())));
    let both_fail = || binder.write_health().check().is_err() && binder.keys_failing() == 2;
    run_during(&binder, double.until("no write gets through", both_fail)).await;
    assert_eq!((binder.keys_waiting(), binder.keys_failing(), binder.write_health().check()), (0, 0, Ok(())));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_wants_another_turn_at_once_gets_it_after_a_while() {
    for steps in [vec![], vec![Step::from(Action::EnqueueClaim(claim("c1").key))]] {
        let double = holding([], [claim("c1")]);
        let engine = Scripted(move |_: &Request, _: &mut dyn Cluster| {
            let again = Decision::new(steps.clone(), Outcome::Done);
            Ok(Decision { requeue_after_ms: again.steps.is_empty().then_some(0), ..again })
        });
        let binder = binder(&double, engine);
        let begin = Instant::now();
        run_during(&binder, double.until("a minute passes", || begin.elapsed() >= MINUTE)).await;
        let decisions = binder.metrics().decisions.get();
        assert!((30..=61).contains(&decisions), "{decisions} decisions in a minute");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_backs_off_as_a_reservation_ends_is_woken_by_a_volume() {
    let double = holding([volume("v1")], [claim("c1"), claim("c2")]);
    (1..=100).for_each(|nth| double.fail_write(nth, WriteError::Invalid("a policy denies it".to_owned())));
    let binder = binder(&double, DefaultEngine);
    let decisions = || binder.metrics().decisions.get();
    run_during(&binder, async {
        // Both claims tried; each had the volume reserved when the other one's turn had failed.
        double.until("both back off for minutes", || double.writes().len() == 48).await;
        let (begin, before) = (Instant::now(), decisions());
        binder.intake().deliver(Delivery::applied(volume("v2")));
        double.until("both and the volume are decided", || decisions() >= before + 3).await;
        assert!(begin.elapsed() < MINUTE / 60, "{:?}", begin.elapsed());
    })
    .await;
}

/// An event of a sync, one of an operation, and one of an unreadable object.
#[tokio::test(start_paused = true)]
async fn what_keeps_a_claim_waiting_is_told_again_as_long_as_it_waits() {
    let double = holding([], [claim("unfit")]);
    let mut external = Claim { class: Some("external".into()), ..claim("external") };
    external.annotations.storage_provisioner = Some("vendor.example/csi".into());
    double.add_claim(&external);
    let binder = binder(&double, DefaultEngine);
    double.watch(binder.intake(), Duration::ZERO);
    let class = bindery_kit::class("external", "vendor.example/csi", Some(BindingMode::Immediate));
    binder.intake().deliver(Delivery::applied(class));
    let (key, why) = (claim("odd").key, "it is odd".into());
    let odd = Unreadable { uid: "uid-odd".into(), version: "1".into(), why };
    let odd = Object::Claim(key.clone(), Observed::Unreadable(Box::new(odd)));
    binder.intake().deliver(Delivery::applied(odd));
    let told = |reason: &str| double.reasons().into_iter().filter(|told| *told == reason).count();
    let reasons = ["FailedBinding", "ExternalProvisioning", "Unreadable"];
    run_during(&binder, async {
        double.until("each is told of", || reasons.iter().all(|reason| told(reason) > 0)).await;
        let (begin, before) = (Instant::now(), reasons.map(told));
        for times in 1..4 {
            let again = || reasons.map(told) == before.map(|before| before + times);
            double.until("each is told of once more", again).await;
            assert_eq!(begin.elapsed().as_secs(), EVENT_REFRESH.as_secs() * times as u64);
        }
        binder.intake().deliver(Delivery::Gone(ObjectKey::Claim(key.clone())));
        for name in ["unfit", "external"] {
            let volume = Volume { class: double.claim(name).class.unwrap_or_default(), ..volume(name) };
            double.add_volume(&volume);
            binder.intake().deliver(Delivery::applied(volume));
            double.until("it is bound", || double.claim(name).status.phase == ClaimPhase::Bound).await;
        }
        double.rest().await;
        let (decisions, told, rest) = (binder.metrics().decisions.get(), double.reasons(), Instant::now());
        double.until("an hour passes", || rest.elapsed() > 4 * EVENT_REFRESH).await;
        assert_eq!((binder.metrics().decisions.get(), double.reasons()), (decisions, told));
    })
    .await;
}

/// A list of that version is requested and completed with all objects of the cluster.
fn relist(double: &Double, binder: &Binder<Double>, kind: Kind, version: &str) {
    binder.intake().list_begins(kind);
    double.deliver_list(binder.intake(), kind, version);
}

#[tokio::test(start_paused = true)]
async fn after_a_restore_nothing_is_decided_before_every_kind_is_listed() {
    let double = holding([Volume { version: "90".into(), ..volume("v1") }], []);
    let binder = binder(&double, DefaultEngine);
    run_during(&binder, async {
        double.rest().await;
        let decisions = binder.metrics().decisions.get();
        for version in ["100", "99"] {
            binder.intake().deliver(Delivery::Bookmark { kind: Kind::Node, version: version.into() });
        }
        assert_eq!(binder.metrics().version_regressions.get(), 1);
        double.add_volume(&volume("v1"));
        double.add_claim(&claim("c1"));
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Pod) {
            relist(&double, &binder, kind, "98");
        }
        double.rest().await;
        assert_eq!(binder.metrics().decisions.get(), decisions);
        relist(&double, &binder, Kind::Pod, "98");
        double.until("the claim is bound", || double.claim("c1").status.phase == ClaimPhase::Bound).await;
    })
    .await;
    assert_eq!(binder.metrics().version_regressions.get(), 1, "one restore is told once");
    assert!(!Kind::ALL.into_iter().any(|kind| binder.intake().freshness().is_list_wanted(kind)));
}

/// With bumped revisions the list has a higher version but older objects.
#[tokio::test(start_paused = true)]
async fn a_volume_that_went_back_is_not_given_to_a_claim_that_may_be_gone() {
    let double = Double::new();
    let mut lost = claim("c1");
    (lost.volume_name, lost.status.phase, lost.annotations.bind_completed) =
        (Some("v1".into()), ClaimPhase::Bound, true);
    double.add_claim(&lost);
    let after_snapshot = Volume { version: "50".into(), ..crate::syncing::taken("v1", "c1") };
    double.add_volume(&Volume { phase: VolumePhase::Bound, ..after_snapshot });
    let binder = binder(&double, DefaultEngine);
    run_during(&binder, async {
        double.rest().await;
        let writes = double.writes().len();
        double.add_volume(&Volume { phase: VolumePhase::Available, ..volume("v1") });
        relist(&double, &binder, Kind::Volume, "1000000");
        double.rest().await;
        assert_eq!(binder.metrics().version_regressions.get(), 1);
        assert_eq!(double.writes().len(), writes, "{:?}", double.write_names());
    })
    .await;
}

/// The API server in memory counts versions from 100 on.
#[tokio::test]
async fn an_own_write_tells_that_versions_went_back() {
    for (known, regressions) in [("100", 0), ("9999", 1)] {
        let double = holding([Volume { phase: VolumePhase::Pending, ..volume("v1") }], []);
        let binder = binder(&double, DefaultEngine);
        binder.intake().deliver(Delivery::Bookmark { kind: Kind::Volume, version: known.into() });
        binder.sync(&key()).await.result.unwrap();
        assert_eq!(double.write_names(), ["set volume phase"]);
        assert_eq!(binder.metrics().version_regressions.get(), regressions, "{known}");
    }
}
