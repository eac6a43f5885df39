//! A server that asks to be left alone for a while is, by all who use one client.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bindery_controller::{Binder, Facts, Parts, Plugin as _, Port, Purpose, Settings};
use bindery_core::{ClaimKey, Lookup, Text, Volume};
use bindery_engine::DefaultEngine;
use bindery_kube::plugins::HostPath;
use bindery_kube::{ApiClient, ApiPort, Elector, Events, LeaseSettings, watch};
use bindery_sim::FaultRule;
use bindery_store::Store;
use futures::future::join_all;
use kube::client::Body;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::world::{World, claim, volume};

type Answer = http::Response<Body>;

fn port(world: &World, client: &ApiClient) -> ApiPort {
    ApiPort::new(client.clone(), world.clock(), Events::new(client.clone()).0)
}

fn binder(world: &World, client: &ApiClient) -> Binder<ApiPort> {
    Binder::new(Parts {
        store: Arc::new(Store::new()),
        port: port(world, client),
        engine: Arc::new(DefaultEngine),
        facts: Facts::default(),
        settings: Settings::default(),
        journal: None,
    })
}

/// Reads a claim that is there; answers whether that was possible.
async fn read(port: &ApiPort) -> bool {
    let claim = port.read_claim(&ClaimKey::new("default", "c1"), Purpose::Guard).await;
    matches!(claim, Lookup::Found(_))
}

/// Whole seconds that something takes.
async fn seconds<T>(future: impl Future<Output = T>) -> (u64, T) {
    let began = Instant::now();
    let value = future.await;
    (began.elapsed().as_secs(), value)
}

/// The next read of a claim is refused, with that `Retry-After`.
fn refuse_a_read(world: &World, retry_after_seconds: u32) {
    let busy = FaultRule::new("get", "persistentvolumeclaims").including_live_reads();
    world.sim.faults().add(busy.busy(retry_after_seconds));
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_refused_holds_back_whatever_comes_next() {
    let world = World::new();
    world.add(claim("c1"));
    world.add(volume("v1"));
    let client = ApiClient::from(world.client());
    let (one, other, name) = (port(&world, &client), port(&world, &client), Text::from("v1"));
    // A proxy may ask for more than anybody should wait.
    for (asked, waited) in [(7, 7), (32, 32), (86_400, 60)] {
        refuse_a_read(&world, asked);
        assert_eq!(seconds(read(&one)).await, (0, false));
        let volume = seconds(other.read_volume(&name, Purpose::Engine)).await;
        assert!(matches!(volume, (took, Lookup::Found(_)) if took == waited), "{asked} s: {volume:?}");
        assert_eq!(seconds(read(&one)).await, (0, true));
    }
    assert_eq!((one.pressure().refused, other.pressure().refused), (3, 3));
}

/// As by the EventRateLimit admission: it is about one kind of request.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_does_not_ask_for_it_holds_back_nobody() {
    let world = World::new();
    world.add(claim("c1"));
    let port = port(&world, &world.client().into());
    let limited = FaultRule::new("get", "persistentvolumeclaims").including_live_reads();
    world.sim.faults().add(limited.fail(429, "TooManyRequests", "limit reached"));
    assert_eq!(seconds(read(&port)).await, (0, false));
    assert_eq!(seconds(read(&port)).await, (0, true));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_room_waits_for_the_pause_too() {
    let world = World::new();
    world.add(claim("c1"));
    let port = port(&world, &world.client().into());
    let room = port.pressure().limit;
    let busy = FaultRule::new("get", "persistentvolumeclaims").including_live_reads();
    world.sim.faults().add(busy.times(room).busy(5));
    let reads = (0..room + 8).map(|_| seconds(read(&port)));
    // All ask before one is answered: tokio would stop the task that asks for all of them in between.
    let answers = tokio::task::unconstrained(join_all(reads)).await;
    let refused = answers.iter().filter(|answer| **answer == (0, false)).count();
    let waited = answers.iter().filter(|answer| **answer == (5, true)).count();
    assert_eq!((refused, waited), (room, 8), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn plugins_ask_under_the_limit_of_the_port() {
    let world = World::new();
    world.add(volume("v1"));
    let client = ApiClient::from(world.client());
    let port = port(&world, &client);
    let Lookup::Found(known) = port.read_volume(&"v1".into(), Purpose::Engine).await else {
        panic!("it is there")
    };
    // Another one of its name is there now: nothing is deleted.
    let known = Volume { uid: "another".into(), ..Volume::clone(&known) };
    let plugin = HostPath::new(client, Some("/nowhere".into()), None);
    world.sim.faults().add(FaultRule::new("get", "persistentvolumes").delay(Duration::from_secs(5)));
    let asks = world.until("it asks", || port.pressure().in_flight == 1);
    let (deleted, ()) = tokio::join!(plugin.delete(&known), asks);
    deleted.unwrap_err();
    assert_eq!(port.pressure().in_flight, 0);
}

/// What a proxy answers that hangs up on every watch.
async fn hang_up(request: http::Request<Body>, watches: Arc<AtomicUsize>) -> Result<Answer, Infallible> {
    const EMPTY: &str =
        r#"{"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": []}"#;
    const FORBIDDEN: &str =
        r#"{"apiVersion": "v1", "kind": "Status", "code": 422, "message": "sendInitialEvents"}"#;
    let query = request.uri().query().unwrap_or_default();
    let (status, text) = match query {
        query if query.contains("sendInitialEvents") => (422, FORBIDDEN),
        query if query.contains("watch=true") => {
            watches.fetch_add(1, Ordering::Relaxed);
            (200, "")
        }
        _ => (200, EMPTY),
    };
    let answer = http::Response::builder().status(status).header("Content-Type", "application/json");
    Ok(answer.body(Body::from(text.as_bytes().to_vec())).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_ended_at_once_comes_again_after_a_pause() {
    let (world, watches) = (World::new(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&watches);
    let service = tower::service_fn(move |request| hang_up(request, Arc::clone(&counted)));
    let client = ApiClient::from(kube::Client::new(service, "default"));
    let binder = binder(&world, &client);
    let watching = watch::run(client, binder.intake().clone(), CancellationToken::new());
    assert!(tokio::time::timeout(Duration::from_secs(60), watching).await.is_err());
    let (asked, failed) = (watches.load(Ordering::Relaxed), binder.metrics().watch_failures.get());
    assert!((10..100).contains(&asked), "{asked} watches in a minute");
    assert!(failed > 0 && failed <= asked as u64, "{failed} of {asked} are told to have failed");
}

/// Lists and watches wait as long as they are asked to, and not for their own backoff of 0.8 s.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_refused_comes_again_when_it_may() {
    for streamed in [true, false] {
        let world = World::new();
        world.add(volume("v1"));
        let verb = if streamed { "watch" } else { "list" };
        if !streamed {
            let forbidden = FaultRule::new("watch", "persistentvolumes");
            world.sim.faults().add(forbidden.fail(422, "Invalid", "sendInitialEvents is forbidden"));
        }
        world.sim.faults().add(FaultRule::new(verb, "persistentvolumes").busy(20));
        let client = ApiClient::from(world.client());
        let binder = binder(&world, &client);
        let shutdown = CancellationToken::new();
        let watches = tokio::spawn(watch::run(client, binder.intake().clone(), shutdown.clone()));
        let listed = world.until("all is listed", || binder.store().synced());
        assert_eq!(seconds(listed).await.0, 20, "by {verb}");
        assert_eq!(world.sim.faults().pending(), 0);
        shutdown.cancel();
        watches.await.unwrap();
    }
}

const LEASE: Duration = Duration::from_secs(16);
/// How often a holder renews.
const PART: Duration = Duration::from_secs(2);

/// Requests for the Lease that have been answered.
fn lease_requests(world: &World) -> usize {
    world.sim.requests().iter().filter(|request| request.resource == "leases").count()
}

/// A Lease that is held, by a candidate with this client.
async fn held(world: &World, client: &ApiClient) -> tokio::sync::watch::Receiver<bool> {
    let settings = LeaseSettings {
        namespace: "kube-system".to_owned(),
        name: "bindery".to_owned(),
        identity: "replica".to_owned(),
        duration: LEASE,
    };
    let elector = Elector::new(client.clone(), settings, tokio::sync::watch::Sender::new(None));
    let (sender, mut holds) = tokio::sync::watch::channel(false);
    tokio::spawn(elector.run(sender));
    let came = holds.wait_for(|holds| *holds).await.map(|_| ());
    came.expect("the candidate runs");
    assert!(world.sim.object("leases", Some("kube-system"), "bindery").is_some());
    holds
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_renewed_through_a_pause_of_others() {
    let world = World::new();
    world.add(claim("c1"));
    let client = ApiClient::from(world.client());
    let mut holds = held(&world, &client).await;
    let port = port(&world, &client);
    refuse_a_read(&world, 50);
    assert!(!read(&port).await);
    holds.mark_unchanged();
    assert_eq!(seconds(read(&port)).await, (50, true));
    assert!(!holds.has_changed().unwrap(), "it stood down");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_refused_is_left_alone_as_long_as_it_can_be() {
    let world = World::new();
    let client = ApiClient::from(world.client());
    let mut holds = held(&world, &client).await;
    let before = lease_requests(&world);
    world.sim.faults().add(FaultRule::new("update", "leases").busy(60));
    world.until("a renewal is refused", || world.sim.faults().pending() == 0).await;
    let refused = Instant::now();
    assert_eq!(lease_requests(&world), before + 1);
    holds.mark_unchanged();
    world.until("it is asked for again", || lease_requests(&world) > before + 1).await;
    // It was renewed one part before, and would stand down after five: from the third on it tries.
    assert!(refused.elapsed() > PART, "{:?}", refused.elapsed());
    assert!(refused.elapsed() <= PART * 3, "{:?}", refused.elapsed());
    world.until("it is renewed for minutes", || lease_requests(&world) > before + 60).await;
    assert!(!holds.has_changed().unwrap(), "it stood down");
}
