//! Lists and watches: what they tell of how current they are, and what they do about servers that fall
//! silent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bindery_controller::{Port as _, Purpose};
use bindery_core::Lookup;
use bindery_sim::FaultRule;
use bindery_store::Kind;
use tokio::time::{Instant, timeout};

use crate::wire::{PATIENCE, VOLUMES, Watching, Wire, forbid_streamed_lists, lists, now};
use crate::world::{World, volume};

#[tokio::test(start_paused = true)]
async fn lists_events_and_bookmarks_tell_the_version_that_a_kind_has_reached() {
    let world = World::new();
    world.add(volume("v1"));
    let watching = Watching::start(&world, &world.client().into());
    watching.until_listed(&world).await;
    world.add(volume("v2"));
    // Volumes reach it by an event, the others by their bookmarks.
    for kind in Kind::ALL {
        watching.until_reached(kind, &now(&world)).await;
    }
    let heard = watching.binder.intake().freshness().age(Kind::Node);
    assert!(heard.is_some_and(|age| age < Duration::from_secs(90)), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_listed_anew_when_a_list_is_wanted_and_no_other_is() {
    for streamed in [true, false] {
        let world = World::new();
        world.add(volume("v1"));
        if !streamed {
            forbid_streamed_lists(&world);
        }
        let watching = Watching::start(&world, &world.client().into());
        watching.until_listed(&world).await;
        world.sim.take_requests();
        let freshness = watching.binder.intake().freshness();
        freshness.want_list(Kind::Volume);
        assert!(timeout(PATIENCE, freshness.until_listed(Kind::Volume)).await.is_ok(), "{streamed}");
        let requests = world.sim.take_requests();
        assert!(requests.iter().all(|request| request.resource == VOLUMES), "{requests:?}");
        assert_eq!(lists(&requests).len(), usize::from(!streamed), "{requests:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_never_answered_is_asked_for_again() {
    let (world, wire) = (World::new(), Arc::<Wire>::default());
    world.add(volume("v1"));
    let watching = Watching::start(&world, &wire.client(&world));
    watching.until_listed(&world).await;
    wire.is_unanswered.store(true, Ordering::Relaxed);
    let asked = wire.asked();
    // The open watch ends by its own time limit; the next two are not answered.
    world.until("two are given up", || wire.asked() > asked + 2).await;
    world.add(volume("v2"));
    wire.is_unanswered.store(false, Ordering::Relaxed);
    watching.until_reached(Kind::Volume, &now(&world)).await;
    assert!(watching.binder.metrics().watch_failures.get() >= 2);
}

/// Bookmarks come every minute: 90 seconds without any bytes mean that the connection is dead.
#[tokio::test(start_paused = true)]
async fn an_open_watch_that_falls_silent_is_opened_again_from_where_it_was() {
    let (world, wire) = (World::new(), Arc::<Wire>::default());
    world.add(volume("v1"));
    let watching = Watching::start(&world, &wire.client(&world));
    watching.until_listed(&world).await;
    wire.is_silent.store(true, Ordering::Relaxed);
    world.add(volume("v2"));
    let (asked, began) = (wire.asked(), Instant::now());
    world.until("it is opened again", || wire.asked() > asked).await;
    assert!(began.elapsed() < Duration::from_secs(95), "{:?}", began.elapsed());
    wire.is_silent.store(false, Ordering::Relaxed);
    watching.until_reached(Kind::Volume, &now(&world)).await;
    let requests = world.sim.take_requests();
    assert_eq!(watching.binder.metrics().watches_expired.get(), 0, "it was listed anew: {requests:?}");
}

#[tokio::test(start_paused = true)]
async fn watches_of_a_server_without_bookmarks_last_as_long_as_was_asked_for() {
    let (world, wire) = (World::new(), Arc::<Wire>::default());
    world.add(volume("v1"));
    wire.is_without_bookmarks.store(true, Ordering::Relaxed);
    forbid_streamed_lists(&world);
    let watching = Watching::start(&world, &wire.client(&world));
    watching.until_listed(&world).await;
    let failures = || watching.binder.metrics().watch_failures.get();
    world.until("two have been silent", || failures() == 2).await;
    let asked = wire.asked();
    world.until("six have ended", || wire.asked() > asked + 6).await;
    assert_eq!(failures(), 2);
    // The server that is upgraded sends bookmarks.
    wire.is_without_bookmarks.store(false, Ordering::Relaxed);
    let asked = wire.asked();
    world.until("one with bookmarks has ended", || wire.asked() > asked + 1).await;
    wire.is_silent.store(true, Ordering::Relaxed);
    let began = Instant::now();
    world.until("its silence is noticed", || failures() == 3).await;
    assert!(began.elapsed() < Duration::from_secs(95), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn streamed_lists_fall_back_to_pages_after_two_failures_unless_the_server_is_busy() {
    let failed = |code, reason| FaultRule::new("watch", VOLUMES).times(2).fail(code, reason, "injected");
    for (rule, is_paged) in [
        (failed(500, "InternalError"), true),
        (failed(403, "Forbidden"), true),
        (FaultRule::new("watch", VOLUMES).times(2).lose_answer(), true),
        (failed(500, "InternalError").times(1), false),
        (FaultRule::new("watch", VOLUMES).times(5).busy(1), false),
    ] {
        let world = World::new();
        world.add(volume("v1"));
        world.sim.faults().add(rule.clone());
        let watching = Watching::start(&world, &world.client().into());
        watching.until_listed(&world).await;
        assert_eq!(lists(&world.sim.requests()).len(), usize::from(is_paged), "{rule:?}");
        assert!(watching.binder.store().synced());
    }
}

/// As behind a proxy that takes bookmarks out.
#[tokio::test(start_paused = true)]
async fn a_streamed_list_whose_end_never_comes_is_fetched_in_pages() {
    let (world, wire) = (World::new(), Arc::<Wire>::default());
    world.add(volume("v1"));
    wire.is_without_bookmarks.store(true, Ordering::Relaxed);
    let watching = Watching::start(&world, &wire.client(&world));
    watching.until_listed(&world).await;
    assert_eq!(lists(&world.sim.requests()), [VOLUMES]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_forgets_every_version_is_asked_for_lists_with_growing_pauses() {
    let world = World::new();
    world.add(volume("v1"));
    forbid_streamed_lists(&world);
    let watching = Watching::start(&world, &world.client().into());
    watching.until_listed(&world).await;
    let forgotten = FaultRule::new("watch", VOLUMES).always();
    world.sim.faults().add(forgotten.fail(410, "Expired", "too old resource version"));
    world.sim.take_requests();
    passes(Duration::from_secs(600)).await;
    let lists = lists(&world.sim.take_requests()).len();
    // The watch that is open ends after 5 minutes. Pauses are 0.8 s at first and 30 s at last.
    assert!((5..30).contains(&lists), "{lists} lists");
    assert!(watching.binder.metrics().watches_expired.get() >= lists as u64);
}

#[tokio::test(start_paused = true)]
async fn a_paged_list_that_expires_midway_twice_is_asked_for_whole() {
    const VOLUMES_MAX: usize = 501;
    let world = World::new();
    (0..VOLUMES_MAX).for_each(|number| world.add(volume(&format!("v{number}"))));
    forbid_streamed_lists(&world);
    let expired = || FaultRule::new("list", VOLUMES).fail(410, "Expired", "the continue token is too old");
    // The second page and, of the second attempt, the second one.
    world.sim.faults().add(expired().nth(2));
    world.sim.faults().add(expired().nth(3));
    let watching = Watching::start(&world, &world.client().into());
    watching.until_listed(&world).await;
    let lists = lists(&world.sim.requests()).into_iter().filter(|resource| *resource == VOLUMES).count();
    assert_eq!(lists, 5, "two pages twice, and all in one answer");
    assert_eq!(watching.binder.store().volume_names().len(), VOLUMES_MAX);
}

#[tokio::test(start_paused = true)]
async fn watches_are_tried_anew_when_the_api_server_answers_again() {
    let (world, wire) = (World::new(), Arc::<Wire>::default());
    world.add(volume("v1"));
    let client = wire.client(&world);
    let watching = Watching::start(&world, &client);
    watching.until_listed(&world).await;
    wire.is_down.send_replace(true);
    passes(Duration::from_secs(60)).await;
    world.add(volume("v2"));
    wire.is_down.send_replace(false);
    let read = watching.binder.port().read_volume(&"v1".into(), Purpose::Engine).await;
    assert!(matches!(read, Lookup::Found(_)), "{read:?}");
    let began = Instant::now();
    watching.until_reached(Kind::Volume, &now(&world)).await;
    assert_eq!(began.elapsed(), Duration::ZERO, "it waited for the end of its backoff");
}

/// As where one kind alone cannot be watched.
#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_while_other_requests_succeed_backs_off() {
    let (world, wire) = (World::new(), Arc::<Wire>::default());
    world.add(volume("v1"));
    let watching = Watching::start(&world, &wire.client(&world));
    watching.until_listed(&world).await;
    world.sim.faults().add(FaultRule::new("watch", VOLUMES).always().lose_answer());
    let asked = wire.asked();
    for _ in 0..900 {
        passes(Duration::from_secs(1)).await;
        watching.binder.port().read_volume(&"v1".into(), Purpose::Engine).await;
    }
    let asked = wire.asked() - asked;
    assert!((20..200).contains(&asked), "{asked} watches in ten minutes");
}

/// Ends when so much of the paused clock's time has passed.
async fn passes(time: Duration) {
    let mut ticks = tokio::time::interval(time);
    ticks.tick().await;
    ticks.tick().await;
}
