//! Lists and watches: how current they are, and how they handle servers that fall silent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bindery_controller::{Port as _, Purpose};
use bindery_core::{Lookup, Source};
use bindery_kit::json;
use bindery_sim::FaultRule;
use bindery_store::Kind;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::network::{Network, PATIENCE, VOLUMES, Watching, forbid_streamed_lists, lists, now};
use crate::simulated::{Cluster, claim, merged, volume};

#[tokio::test(start_paused = true)]
async fn events_and_bookmarks_advance_the_version_of_each_kind() {
    let cluster = Cluster::with([volume("v1")]);
    let watching = Watching::listed(&cluster, &cluster.client().into()).await;
    cluster.add(volume("v2"));
    // Volumes reach the version by an event, other kinds by a bookmark.
    for kind in Kind::ALWAYS {
        watching.until_reached(kind, &now(&cluster)).await;
    }
    let heard = watching.binder.intake().freshness().age(Kind::Node);
    assert!(heard.is_some_and(|age| age < Duration::from_secs(90)), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_wanted_lists_that_kind_only() {
    for streamed in [true, false] {
        let cluster = Cluster::with([volume("v1")]);
        if !streamed {
            forbid_streamed_lists(&cluster);
        }
        let watching = Watching::listed(&cluster, &cluster.client().into()).await;
        cluster.sim.take_requests();
        let freshness = watching.binder.intake().freshness();
        freshness.want_list(Kind::Volume);
        assert!(timeout(PATIENCE, freshness.until_listed(Kind::Volume)).await.is_ok(), "{streamed}");
        let requests = cluster.sim.take_requests();
        assert!(requests.iter().all(|request| request.resource == VOLUMES), "{requests:?}");
        assert_eq!(lists(&requests).len(), usize::from(!streamed), "{requests:?}");
    }
}

/// So listing a large cluster again takes no memory for a second copy of it.
#[tokio::test(start_paused = true)]
async fn a_list_keeps_the_known_copy_of_an_unchanged_object() {
    let cluster = Cluster::with([volume("v1")]);
    let watching = Watching::listed(&cluster, &cluster.client().into()).await;
    let copy = || watching.binder.store().volume(Source::Cache, "v1");
    let (Lookup::Found(known), freshness) = (copy(), watching.binder.intake().freshness()) else { panic!() };
    freshness.want_list(Kind::Volume);
    assert!(timeout(PATIENCE, freshness.until_listed(Kind::Volume)).await.is_ok());
    assert!(matches!(copy(), Lookup::Found(listed) if Arc::ptr_eq(&listed, &known)));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_never_answered_is_requested_again() {
    let (cluster, network) = (Cluster::with([volume("v1")]), Network::of(VOLUMES));
    let watching = Watching::listed(&cluster, &network.client(&cluster)).await;
    network.is_unanswered.store(true, Ordering::Relaxed);
    let asked = network.asked();
    // The open watch ends by its own time limit; the next two are not answered.
    cluster.until("two are given up", || network.asked() > asked + 2).await;
    cluster.add(volume("v2"));
    network.is_unanswered.store(false, Ordering::Relaxed);
    watching.until_reached(Kind::Volume, &now(&cluster)).await;
    assert!(watching.binder.metrics().watch_failures.get() >= 2);
}

fn one_of_each_kind() -> [Value; 5] {
    let pod = json!({"metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "n"}});
    let of_kind = |kind: &str, object: Value| merged(json!({"apiVersion": "v1", "kind": kind}), object);
    [
        volume("v2"),
        claim("c"),
        json::class("s", "vendor.example/csi", json!({"volumeBindingMode": "Immediate"})),
        of_kind("Pod", pod),
        of_kind("Node", json!({"metadata": {"name": "n"}})),
    ]
}

/// Bookmarks come every minute, so 90 seconds without bytes mean that the connection is dead.
#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_silent_is_opened_again_without_a_list() {
    const ALL: &str = "";
    for (resource, watches) in [
        (VOLUMES, 1),
        ("persistentvolumeclaims", 1),
        ("storageclasses", 1),
        ("pods", 1),
        ("nodes", 1),
        (ALL, Kind::ALWAYS.len()),
    ] {
        let (cluster, network) = (Cluster::with([volume("v1")]), Network::of(resource));
        let watching = Watching::listed(&cluster, &network.client(&cluster)).await;
        network.is_silent.store(true, Ordering::Relaxed);
        one_of_each_kind().into_iter().for_each(|object| cluster.add(object));
        let (asked, began) = (network.asked(), Instant::now());
        cluster.until("they are opened again", || network.asked() >= asked + watches).await;
        assert!(began.elapsed() < Duration::from_secs(95), "{resource:?}: {:?}", began.elapsed());
        network.is_silent.store(false, Ordering::Relaxed);
        for kind in Kind::ALWAYS {
            watching.until_reached(kind, &now(&cluster)).await;
        }
        let requests = cluster.sim.take_requests();
        assert_eq!(watching.binder.metrics().watches_expired.get(), 0, "it was listed anew: {requests:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn given_open_watches_that_stay_silent_their_kind_is_listed() {
    for is_without_bookmarks in [false, true] {
        let (cluster, network) = (Cluster::with([volume("v1")]), Network::of(VOLUMES));
        network.is_without_bookmarks.store(is_without_bookmarks, Ordering::Relaxed);
        let watching = Watching::listed(&cluster, &network.client(&cluster)).await;
        passes(Duration::from_secs(400)).await;
        network.is_silent.store(true, Ordering::Relaxed);
        cluster.add(volume("v2"));
        watching.until_reached(Kind::Volume, &now(&cluster)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_bookmarks_a_silent_watch_lasts_until_its_end() {
    let (cluster, network) = (Cluster::with([volume("v1")]), Network::of(VOLUMES));
    network.is_without_bookmarks.store(true, Ordering::Relaxed);
    forbid_streamed_lists(&cluster);
    let watching = Watching::listed(&cluster, &network.client(&cluster)).await;
    let failures = || watching.binder.metrics().watch_failures.get();
    cluster.until("two have been silent", || failures() == 2).await;
    let asked = network.asked();
    cluster.until("six have ended", || network.asked() > asked + 6).await;
    assert_eq!(failures(), 2);
    // An upgraded server sends bookmarks.
    network.is_without_bookmarks.store(false, Ordering::Relaxed);
    let asked = network.asked();
    cluster.until("one with bookmarks has ended", || network.asked() > asked + 1).await;
    network.is_silent.store(true, Ordering::Relaxed);
    let began = Instant::now();
    cluster.until("its silence is noticed", || failures() == 3).await;
    assert!(began.elapsed() < Duration::from_secs(95), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn two_failed_streams_are_followed_by_pages_unless_server_is_busy() {
    let failed = |code, reason| FaultRule::new("watch", VOLUMES).times(2).fail(code, reason, "injected");
    for (rule, is_paged) in [
        (failed(500, "InternalError"), true),
        (failed(403, "Forbidden"), true),
        (FaultRule::new("watch", VOLUMES).times(2).lose_answer(), true),
        (failed(500, "InternalError").times(1), false),
        (FaultRule::new("watch", VOLUMES).times(5).busy(1), false),
    ] {
        let cluster = Cluster::with([volume("v1")]);
        cluster.sim.faults().add(rule.clone());
        let watching = Watching::listed(&cluster, &cluster.client().into()).await;
        assert_eq!(lists(&cluster.sim.requests()).len(), usize::from(is_paged), "{rule:?}");
        assert!(watching.binder.store().synced());
    }
}

/// As behind a proxy that removes bookmarks.
#[tokio::test(start_paused = true)]
async fn a_streamed_list_without_end_is_followed_by_pages() {
    let (cluster, network) = (Cluster::with([volume("v1")]), Network::of(VOLUMES));
    network.is_without_bookmarks.store(true, Ordering::Relaxed);
    let _watching = Watching::listed(&cluster, &network.client(&cluster)).await;
    assert_eq!(lists(&cluster.sim.requests()), [VOLUMES]);
}

#[tokio::test(start_paused = true)]
async fn lists_back_off_when_every_version_expires_at_once() {
    let cluster = Cluster::with([volume("v1")]);
    forbid_streamed_lists(&cluster);
    let watching = Watching::listed(&cluster, &cluster.client().into()).await;
    let forgotten = FaultRule::new("watch", VOLUMES).always();
    cluster.sim.faults().add(forgotten.fail(410, "Expired", "too old resource version"));
    cluster.sim.take_requests();
    passes(Duration::from_secs(600)).await;
    let lists = lists(&cluster.sim.take_requests()).len();
    // The watch that is open ends after 5 minutes. Pauses are 0.8 s at first and 30 s at last.
    assert!((5..30).contains(&lists), "{lists} lists");
    assert!(watching.binder.metrics().watches_expired.get() >= lists as u64);
}

/// A replica releases the Lease while a wanted list does not complete.
#[tokio::test(start_paused = true)]
async fn an_expired_watch_wants_a_list_until_one_is_complete() {
    let cluster = Cluster::with([volume("v1")]);
    forbid_streamed_lists(&cluster);
    let watching = Watching::listed(&cluster, &cluster.client().into()).await;
    let freshness = watching.binder.intake().freshness();
    cluster.sim.faults().add(FaultRule::new("watch", VOLUMES).fail(410, "Expired", "too old"));
    cluster.sim.faults().add(FaultRule::new("list", VOLUMES).times(3).fail(500, "InternalError", "injected"));
    cluster.until("a list is wanted", || freshness.is_list_wanted(Kind::Volume)).await;
    assert!(timeout(PATIENCE, freshness.until_listed(Kind::Volume)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_paged_list_that_expires_twice_is_requested_whole_once() {
    const VOLUMES_MAX: usize = 501;
    let cluster = Cluster::new();
    (0..VOLUMES_MAX).for_each(|number| cluster.add(volume(&format!("v{number}"))));
    forbid_streamed_lists(&cluster);
    let expired = || FaultRule::new("list", VOLUMES).fail(410, "Expired", "the continue token is too old");
    // The second page of the first attempt, and of the second.
    cluster.sim.faults().add(expired().nth(2));
    cluster.sim.faults().add(expired().nth(3));
    // A server that cannot send all pages in time may not send everything in one answer either.
    cluster
        .sim
        .faults()
        .add(FaultRule::new("list", VOLUMES).fail(504, "Timeout", "it takes too long").nth(3));
    let watching = Watching::listed(&cluster, &cluster.client().into()).await;
    let lists = lists(&cluster.sim.requests()).into_iter().filter(|resource| *resource == VOLUMES).count();
    assert_eq!(lists, 7, "two pages twice, all in one answer, which fails, and two pages");
    assert_eq!(watching.binder.store().volume_names().len(), VOLUMES_MAX);
}

#[tokio::test(start_paused = true)]
async fn watches_are_opened_at_once_when_the_api_server_returns() {
    let (cluster, network) = (Cluster::with([volume("v1")]), Network::of(VOLUMES));
    let client = network.client(&cluster);
    let watching = Watching::listed(&cluster, &client).await;
    network.is_down.send_replace(true);
    passes(Duration::from_secs(60)).await;
    cluster.add(volume("v2"));
    network.is_down.send_replace(false);
    let read = watching.binder.port().read_volume(&"v1".into(), Purpose::Engine).await;
    assert!(matches!(read, Lookup::Found(_)), "{read:?}");
    let began = Instant::now();
    watching.until_reached(Kind::Volume, &now(&cluster)).await;
    assert_eq!(began.elapsed(), Duration::ZERO, "it waited for the end of its backoff");
}

#[tokio::test(start_paused = true)]
async fn given_watches_that_are_cut_again_and_again_nothing_is_listed() {
    const CUTS: usize = 5;
    let (cluster, network) = (Cluster::with([volume("v1")]), Network::of(VOLUMES));
    let watching = Watching::listed(&cluster, &network.client(&cluster)).await;
    forbid_streamed_lists(&cluster);
    cluster.sim.take_requests();
    for _ in 0..CUTS {
        for is_down in [true, false] {
            network.is_down.send_replace(is_down);
            passes(Duration::from_secs(50)).await;
            watching.binder.port().read_volume(&"v1".into(), Purpose::Engine).await;
        }
    }
    // After each cut, lists of one object show whether versions went back.
    assert_eq!(lists(&cluster.sim.take_requests()).len(), CUTS * Kind::ALWAYS.len());
}

/// As when a single kind cannot be watched.
#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_while_other_requests_succeed_backs_off() {
    let (cluster, network) = (Cluster::with([volume("v1")]), Network::of(VOLUMES));
    let watching = Watching::listed(&cluster, &network.client(&cluster)).await;
    cluster.sim.faults().add(FaultRule::new("watch", VOLUMES).always().lose_answer());
    cluster.add(volume("v2"));
    let asked = network.asked();
    for _ in 0..900 {
        passes(Duration::from_secs(1)).await;
        watching.binder.port().read_volume(&"v1".into(), Purpose::Engine).await;
    }
    let asked = network.asked() - asked;
    assert!((20..200).contains(&asked), "{asked} watches in fifteen minutes");
    // It was listed meanwhile.
    watching.until_reached(Kind::Volume, &now(&cluster)).await;
}

async fn passes(time: Duration) {
    let mut ticks = tokio::time::interval(time);
    ticks.tick().await;
    ticks.tick().await;
}
