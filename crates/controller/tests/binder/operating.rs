//! Operations, and the decisions about their objects meanwhile.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bindery_controller::{Binder, OPERATION_BACKOFF, Parts, Settings, WriteError};
use bindery_core::{
    Action, Answer, BindingMode, Claim, ClaimPhase, Cluster, Decision, Engine, EngineFault,
    FINALIZER_IN_TREE, Follows, Key, Message, Operation, OperationKind, Outcome, Point, Question,
    ReclaimPolicy, Request, Source, Step, Subject, Version, Volume, VolumePhase,
};
use bindery_engine::DefaultEngine;
use bindery_kit::Logged;
use bindery_store::Delivery;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;

use crate::disk::{DISK, Disk};
use crate::double::{Double, PROTECTION, Scripted, binder_of, claim, holding, parts, volume};
use crate::syncing::taken;

const SECOND: Duration = Duration::from_secs(1);

/// A volume that the plugin deletes, and whose claim is gone.
pub(crate) fn released() -> Volume {
    let mut volume = taken("v1", "c1");
    volume.phase = VolumePhase::Released;
    volume.policy = ReclaimPolicy::Delete;
    volume.annotations.provisioned_by = Some(DISK.into());
    volume.finalizers.push(FINALIZER_IN_TREE.into());
    volume
}

pub(crate) fn key() -> Key {
    Key::Volume("v1".into())
}

/// A binder with the plugin; its loop does not run yet.
pub(crate) fn binder(
    double: &Double,
    disk: &Arc<Disk>,
    engine: impl Engine + 'static,
) -> Arc<Binder<Double>> {
    binder_of(Parts { configuration: disk.configuration(), ..parts(double, engine) })
}

/// Lets the loop run until this has ended.
pub(crate) async fn run_during(binder: &Arc<Binder<Double>>, this: impl Future<Output = ()>) {
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(binder).run(shutdown.clone()));
    this.await;
    shutdown.cancel();
    running.await.expect("the loop does not panic");
}

/// Wakes the volume every tenth of a second.
async fn wake_without_end(binder: &Binder<Double>) {
    let mut tenths = tokio::time::interval(SECOND / 10);
    loop {
        tenths.tick().await;
        binder.intake().enqueue(key());
    }
}

/// The decisions and writes about a released volume.
const ONE_PASS: [&str; 8] = [
    "volume decided",
    "step decided",
    "disk begins",
    "disk ends",
    "step decided",
    "annotate volume",
    "step decided",
    "delete volume",
];

/// Leaves out the decisions about the volume, except for the one that started its operation.
fn operation_of(story: &[&'static str]) -> Vec<&'static str> {
    let (first, rest) = story.split_first().expect("something happened");
    std::iter::once(first).chain(rest.iter().filter(|what| **what != "volume decided")).copied().collect()
}

#[tokio::test(start_paused = true)]
async fn while_an_operation_decides_and_writes_its_object_is_not_decided() {
    let double = holding([released()], []);
    double.set_latency(SECOND);
    let disk = Disk::new(&double);
    let held = Arc::clone(&disk.gate).acquire_many_owned(1_000).await.unwrap();
    let binder = binder(&double, &disk, DefaultEngine);
    double.watch(binder.intake(), Duration::ZERO);
    run_during(&binder, async {
        tokio::select! {
            biased;
            () = wake_without_end(&binder) => {}
            () = async {
                let decided_while_it_works = || double.story().ends_with(&["disk begins", "volume decided"]);
                double.until("the volume is decided while the plugin works", decided_while_it_works).await;
                drop(held);
                double.until("the volume is gone", || !double.has_volume("v1")).await;
            } => {}
        }
    })
    .await;
    // Each read took a second and each write two, and every tenth of a second the volume was queued. It was
    // decided only while the plugin worked.
    let (until_disk_begins, from_disk_ends) = ONE_PASS.split_at(3);
    assert_eq!(double.story(), [until_disk_begins, &["volume decided"], from_disk_ends].concat());
}

#[tokio::test(start_paused = true)]
async fn while_an_operation_waits_its_object_is_decided() {
    let double = holding([released()], []);
    let disk = Disk::new(&double);
    let engine = Scripted(|request: &Request, cluster: &mut dyn Cluster| match &request.subject {
        Subject::SyncVolumeOperation(_) => Ok(Decision { wait_ms: 10_000, ..Decision::done() }),
        _ => bindery_engine::decide(request, cluster).map_err(EngineFault::from),
    });
    let binder = binder(&double, &disk, engine);
    let decisions = || binder.metrics().decisions.get();
    run_during(&binder, async {
        double.until("the volume and the operation's first step are decided", || decisions() == 2).await;
        binder.intake().enqueue(key());
        double.until("the volume is decided again", || decisions() == 3).await;
        // The checks and the journal after the wait have not happened yet.
        assert_eq!(double.story(), ["volume decided"]);
        // The end of the operation wakes the object whose sync learnt that it runs.
        double.until("the operation has ended", || double.story().len() == 3).await;
        assert_eq!(double.story(), ["volume decided", "step decided", "volume decided"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_with_the_in_tree_finalizer_is_deleted_in_one_pass() {
    for (latency, lag, is_protected) in [0, 1, 500]
        .into_iter()
        .flat_map(|latency| [0, 1, 700].map(|lag| (latency, lag)))
        .flat_map(|(latency, lag)| [false, true].map(|is_protected| (latency, lag, is_protected)))
    {
        let case = format!("latency {latency} ms, lag {lag} ms, protected {is_protected}");
        let double = Double::new();
        let mut volume = released();
        if is_protected {
            volume.finalizers.insert(0, PROTECTION.into());
        }
        double.add_volume(&volume);
        double.set_latency(Duration::from_millis(latency));
        let disk = Disk::new(&double);
        let binder = binder(&double, &disk, DefaultEngine);
        double.watch(binder.intake(), Duration::from_millis(lag));
        run_during(&binder, double.rest()).await;
        assert_eq!(operation_of(&double.whole_story()), ONE_PASS, "{case}");
        assert!(!double.has_volume("v1"), "{case}");
        let metrics = binder.metrics();
        let failed =
            [&metrics.conflicts, &metrics.write_errors, &metrics.sync_errors].map(|count| count.get());
        assert_eq!((failed, metrics.operations.get()), ([0; 3], 1), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_reached_does_not_count_as_made() {
    let double = holding([released()], []);
    let disk = Disk::new(&double);
    // A write that need not succeed goes before the call of the plugin.
    let engine = Scripted(|request: &Request, cluster: &mut dyn Cluster| {
        let mut decision = bindery_engine::decide(request, cluster)?;
        if let Subject::SyncVolumeOperation(progress) = &request.subject
            && progress.point == Point::Start
        {
            let message = Message::DeleteFailed("not yet".into());
            let (volume, phase) = (progress.object.target(), VolumePhase::Failed);
            let action = Action::SetVolumePhase { volume, phase, message };
            decision.steps.insert(0, Step { action, follows: Follows::Tolerated });
        }
        Ok(decision)
    });
    let binder = binder(&double, &disk, engine);
    double.watch(binder.intake(), Duration::ZERO);
    double.fail_write(1, WriteError::Failed("the line is dead".to_owned()));
    run_during(&binder, double.until("the volume is gone", || !double.has_volume("v1"))).await;
    let story = double.whole_story();
    let first = |what| story.iter().position(|happened| *happened == what);
    assert!(first("disk begins") < first("annotate volume"), "{story:?}");
    assert_eq!(binder.metrics().operation_errors.get(), 1);
}

/// An engine whose syncs of the volume start an operation until its version is the last one, and whose
/// operation reads the volume live. The versions that syncs saw are kept.
fn reader(seen: &Arc<Mutex<Vec<Version>>>, last: &'static str) -> impl Engine + 'static {
    let seen = Arc::clone(seen);
    Scripted(move |request: &Request, cluster: &mut dyn Cluster| {
        let start = |volume: &Volume| {
            let operation =
                Operation { kind: OperationKind::Delete, plugin: DISK.into(), uid: volume.uid.clone() };
            Decision::new(vec![Step::from(Action::StartOperation(operation))], Outcome::Done)
        };
        match &request.subject {
            Subject::SyncVolume(volume) => {
                seen.lock().expect("no code panics while it holds the lock").push(volume.version.clone());
                Ok(if *volume.version.0 == *last { Decision::done() } else { start(volume) })
            }
            Subject::SyncVolumeOperation(progress) => {
                match cluster.ask(Question::Volume(Source::Live, progress.object.name.clone()))? {
                    Answer::Volume(_) => Ok(Decision::done()),
                    other => panic!("{other:?}"),
                }
            }
            other => panic!("{other:?}"),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn what_changes_while_an_operation_decides_is_decided_after_it() {
    let double = holding([released()], []);
    let seen = Arc::default();
    let binder = binder(&double, &Disk::new(&double), reader(&seen, "2"));
    let held = Arc::clone(&double.reads_gate).acquire_many_owned(1_000).await.unwrap();
    run_during(&binder, async {
        double.until("the operation reads the volume", || double.volume_reads() == 1).await;
        let changed = Volume { version: "2".into(), phase: VolumePhase::Failed, ..released() };
        binder.intake().deliver(Delivery::applied(changed));
        double.rest().await;
        assert_eq!(*seen.lock().unwrap(), ["1".into()]);
        drop(held);
        double.rest().await;
        assert_eq!(*seen.lock().unwrap(), ["1".into(), "2".into()]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_operation_takes_no_room_from_others_nor_does_its_object() {
    let double = holding([released()], []);
    let disk = Disk::new(&double);
    let settings = Settings { in_flight_max: 1, ..Settings::default() };
    let binder =
        binder_of(Parts { configuration: disk.configuration(), settings, ..parts(&double, DefaultEngine) });
    double.watch(binder.intake(), Duration::ZERO);
    // The operation hangs first in its step, then in the plugin.
    let read = Arc::clone(&double.reads_gate).acquire_many_owned(1_000).await.unwrap();
    let deletion = Arc::clone(&disk.gate).acquire_many_owned(1_000).await.unwrap();
    run_during(&binder, async {
        let bind = async |name: &str| {
            let volume = volume(&format!("volume-of-{name}"));
            binder.intake().enqueue(key());
            double.add_volume(&volume);
            double.add_claim(&claim(name));
            binder.intake().deliver(Delivery::applied(volume));
            binder.intake().deliver(Delivery::applied(claim(name)));
            double.until("the claim is bound", || double.claim(name).status.phase == ClaimPhase::Bound).await;
        };
        double.until("the operation reads the volume", || double.volume_reads() == 1).await;
        bind("a").await;
        drop(read);
        double.until("the plugin works", || double.story().contains(&"disk begins")).await;
        bind("b").await;
        drop(deletion);
        double.until("the volume is gone", || !double.has_volume("v1")).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_a_loop_syncs_and_operations_take_turns() {
    let double = holding([released()], []);
    double.set_latency(SECOND);
    let disk = Disk::new(&double);
    let binder = binder(&double, &disk, DefaultEngine);
    double.watch(binder.intake(), Duration::ZERO);
    let mut synced = binder.sync(&key()).await;
    let operation = synced.operations.pop().expect("the volume is to be deleted");
    let key = key();
    let (first, performed, second) =
        tokio::join!(binder.sync(&key), binder.perform(operation), binder.sync(&key));
    assert_eq!((first.result, performed, second.result), (Ok(()), Ok(()), Ok(())));
    assert_eq!(operation_of(&double.whole_story()), ONE_PASS);
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_panics_backs_off_and_is_called_again() {
    let double = holding([released()], []);
    let disk = Disk::new(&double);
    disk.panics.store(2, Ordering::Relaxed);
    let binder = binder(&double, &disk, DefaultEngine);
    double.watch(binder.intake(), Duration::ZERO);
    let calls = || double.whole_story().iter().filter(|what| **what == "disk begins").count();
    run_during(&binder, async {
        let mut called = Instant::now();
        for (nth, backoff) in
            [Duration::ZERO, OPERATION_BACKOFF, 2 * OPERATION_BACKOFF].into_iter().enumerate()
        {
            double.until("the plugin is called", || calls() == nth + 1).await;
            // By the virtual clock, on which nothing else takes time.
            assert!((backoff..=backoff + SECOND / 10).contains(&called.elapsed()), "{:?}", called.elapsed());
            called = Instant::now();
        }
        double.rest().await;
    })
    .await;
    assert_eq!((calls(), double.has_volume("v1")), (3, false));
}

/// As by a replica that loses its Lease and gets it back.
#[tokio::test(start_paused = true)]
async fn an_operation_that_backs_off_at_the_end_is_tried_by_the_next_loop() {
    let double = holding([released()], []);
    let (disk, faults) = (Disk::new(&double), AtomicU32::new(1));
    let engine = Scripted(move |request: &Request, cluster: &mut dyn Cluster| match &request.subject {
        Subject::SyncVolumeOperation(_) if faults.swap(0, Ordering::Relaxed) > 0 => {
            Err(EngineFault::Trapped("unreachable".to_owned()))
        }
        _ => Ok(bindery_engine::decide(request, cluster)?),
    });
    let binder = binder(&double, &disk, engine);
    double.watch(binder.intake(), Duration::ZERO);
    let has_failed = || binder.metrics().operation_errors.get() == 1;
    run_during(&binder, double.until("it has failed", has_failed)).await;
    run_during(&binder, double.until("the volume is gone", || !double.has_volume("v1"))).await;
}

#[tokio::test(start_paused = true)]
async fn storage_that_an_operation_may_leave_at_its_end_is_logged() {
    for (end, is_gated, fails, is_left) in [
        ("the loop ends while the plugin works", true, false, true),
        ("the engine fails after the plugin", false, true, true),
        ("the volume is created", false, false, false),
    ] {
        let log = Logged::from(LevelFilter::WARN);
        let double = holding([], [Claim { class: Some("gold".into()), ..claim("c1") }]);
        let disk = Disk::new(&double);
        let _held = is_gated.then(|| Arc::clone(&disk.gate).try_acquire_many_owned(1_000));
        let engine = Scripted(move |request: &Request, cluster: &mut dyn Cluster| match &request.subject {
            Subject::SyncClaimOperation(progress) if fails && progress.point == Point::Provisioned => {
                Err(EngineFault::Trapped("unreachable".to_owned()))
            }
            _ => Ok(bindery_engine::decide(request, cluster)?),
        });
        let binder = binder(&double, &disk, engine);
        let class = bindery_kit::class("gold", DISK, Some(BindingMode::Immediate));
        binder.intake().deliver(Delivery::applied(class));
        let ended = || binder.metrics().operations.get() + binder.metrics().operation_errors.get() > 0;
        let works = || double.story().contains(&"disk begins");
        run_during(&binder, double.until(end, || if is_gated { works() } else { ended() })).await;
        let text = log.text();
        assert_eq!(text.contains("is left behind volume=pvc-"), is_left, "{end}: {text}");
    }
}
