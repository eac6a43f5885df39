//! What a claim that stays stuck costs the API server in events: client-go's `EventCorrelator` with its
//! numbers, and what upstream's binder makes of the same.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bindery_cluster::{Asked, Before, Clock, ControlPlane, Manager, Programs, Proxy, Weather};
use futures::StreamExt as _;
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::world::{PATIENCE, Replica, World, is_told, phase};

/// How many events of one object and type are written at once (`defaultSpamBurst`).
const BURST: i64 = 25;
/// Seconds until one more is written (`defaultSpamQPS` is 1/300).
const REFILL: i64 = 300;
/// From this many messages of one reason on, they are combined (`defaultAggregateMaxEvents`).
const MESSAGES: usize = 10;
/// What the message of those begins with.
const COMBINED: &str = "(combined from similar events): ";
/// How often the claim is changed once its burst is spent.
const TOUCHES_IN_VAIN: usize = 35;
/// At every which of these changes a volume comes and goes.
const VOLUME_EVERY: usize = 5;
/// Volumes are deleted at once, though no controller runs that lets go of them.
const UNPROTECTED: &str = "--disable-admission-plugins=StorageObjectInUseProtection";
const REASON: &str = "FailedBinding";

/// A claim that no volume fits, and what happens around it.
struct Stuck {
    world: World,
    claims: Api<PersistentVolumeClaim>,
    volumes: Api<PersistentVolume>,
    events: Api<Event>,
    /// How often the claim was changed.
    touches: usize,
    /// How many claims were created to see whether everything before them has been told.
    barriers: usize,
}

/// What the API server holds about the stuck claim in the end.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    /// Type, reason and message of the one event; this message is upstream's to the letter.
    event: [String; 3],
    /// How often it was counted, before time has added to what may be written.
    count: i64,
}

impl Stuck {
    async fn new(plane: &ControlPlane) -> Self {
        let (world, client) = (World::new(plane).await, plane.client().await.unwrap());
        let claims = Api::default_namespaced(client.clone());
        let (volumes, events) = (Api::all(client.clone()), Api::default_namespaced(client));
        Self { world, claims, volumes, events, touches: 0, barriers: 0 }
    }

    /// Changes something of the claim that matters to nobody.
    async fn touch(&mut self) {
        self.touches += 1;
        let field = ["annotations", "labels"][self.touches % 2];
        let change =
            Patch::Merge(json!({"metadata": {field: {"example.com/touch": self.touches.to_string()}}}));
        self.claims.patch("stuck", &PatchParams::default(), &change).await.unwrap();
    }

    /// Waits until what there was to tell is told: one worker writes all events, in the order in which they
    /// were recorded, and this one is of a claim that was not there before.
    async fn until_told(&mut self) {
        self.barriers += 1;
        let barrier = format!("barrier-{}", self.barriers);
        self.world.create_claim(&barrier, "1Ti").await;
        self.world.until_event(is_told(&barrier, REASON)).await;
    }

    /// Creates a volume that is too small for the claim, and deletes it.
    async fn volume_comes_and_goes(&self) {
        let name = format!("small-{}", self.touches);
        self.world.create_volume(&name, "1Mi").await;
        self.world.until_volume(&name, |volume| phase(volume) == "Available").await;
        self.volumes.delete(&name, &DeleteParams::default()).await.unwrap();
        self.world.until_no_volume(&name).await;
    }

    /// Creates the claim and changes it until its burst is spent; then goes on.
    async fn story(&mut self) {
        self.world.create_claim("stuck", "1Ti").await;
        for count in 1..=BURST {
            if count > 1 {
                self.touch().await;
            }
            let is_told = is_told("stuck", REASON);
            self.world.until_event(|event| is_told(event) && i64::from(event.count.unwrap()) >= count).await;
        }
        for number in 1..=TOUCHES_IN_VAIN {
            self.touch().await;
            if number % VOLUME_EVERY == 0 {
                self.volume_comes_and_goes().await;
            }
            self.until_told().await;
        }
    }

    /// The one event that there is about the claim.
    async fn event(&self) -> Event {
        let all = self.events.list(&ListParams::default()).await.unwrap();
        let is_about = |event: &Event| event.involved_object.name.as_deref() == Some("stuck");
        let mut events: Vec<_> = all.into_iter().filter(is_about).collect();
        assert_eq!(events.len(), 1, "{events:#?}");
        events.remove(0)
    }

    async fn told(&self) -> Told {
        let event = self.event().await;
        let count = i64::from(event.count.unwrap());
        Told { event: [event.type_, event.reason, event.message].map(Option::unwrap), count }
    }

    /// Changes the claim when it may be told of once more, and goes on. Returns the event as it was then.
    async fn is_heard_again(&mut self, clock: &Clock) -> Event {
        let before = self.event().await.count;
        clock.set(REFILL).unwrap();
        self.touch().await;
        let is_told = is_told("stuck", REASON);
        let heard = self.world.until_event(|event| is_told(event) && event.count > before).await;
        for _ in 0..VOLUME_EVERY {
            self.touch().await;
            self.until_told().await;
        }
        heard
    }
}

/// How often more than [`BURST`] an event may have been written by the time that it has.
fn refilled(event: &Event) -> i64 {
    let [first, last] = [&event.first_timestamp, &event.last_timestamp];
    let [first, last] = [first, last].map(|time| time.as_ref().unwrap().0.as_second());
    (last - first) / REFILL
}

/// How often a replica created an event about the stuck claim, and how often it changed one.
fn writes(asked: &[Asked]) -> (usize, usize) {
    const EVENTS: &str = "/api/v1/namespaces/default/events";
    let is_created = |asked: &&Asked| {
        let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        asked.method == Method::POST && asked.path == EVENTS && body["involvedObject"]["name"] == "stuck"
    };
    let prefix = format!("{EVENTS}/stuck.");
    let is_changed = |asked: &&Asked| asked.method != Method::GET && asked.path.starts_with(&prefix);
    (asked.iter().filter(is_created).count(), asked.iter().filter(is_changed).count())
}

#[tokio::test]
async fn a_stuck_claim_is_told_of_in_one_event_whose_writes_are_limited_as_upstreams_are() {
    let programs = Programs::from_env().unwrap();
    let plane = ControlPlane::start_with(programs, Manager::Off, &[UNPROTECTED]).await.unwrap();
    let (proxy, clock) = (Proxy::start(&plane).await.unwrap(), Clock::new().unwrap());
    let mut stuck = Stuck::new(&plane).await;
    // What is not written is only in the log.
    let log = ["--log=info,bindery_kube=debug".to_owned()];
    let replica = Replica::start_with(&proxy.kubeconfig(), "first", &log, &clock.environment());
    stuck.story().await;
    let told = stuck.told().await;
    let message = "no persistent volumes available for this claim and no storage class is set";
    let event = ["Normal", REASON, message].map(str::to_owned);
    assert_eq!(told, Told { event, count: BURST }, "{}", replica.log());
    // Not for want of anything to tell.
    let is_held_back = |line: &&str| line.contains("an event is suppressed") && line.contains("stuck");
    let held_back = replica.log().lines().filter(is_held_back).count();
    assert!(held_back >= TOUCHES_IN_VAIN, "{held_back} are held back\n{}", replica.log());
    let metrics = replica.get("/metrics").await;
    let mut dropped = metrics.lines().filter(|line| line.starts_with("bindery_events_dropped_total{"));
    assert!(dropped.all(|line| line.ends_with(" 0")), "{metrics}");

    // Then it tells how often it would have been heard.
    let heard = stuck.is_heard_again(&clock).await;
    let in_vain = usize::try_from(i64::from(heard.count.unwrap()) - BURST).unwrap();
    assert!(in_vain > TOUCHES_IN_VAIN, "{heard:#?}");
    let refilled = refilled(&stuck.event().await);
    let changes = usize::try_from(BURST - 1 + refilled).unwrap();
    assert_eq!(writes(&proxy.take_asked()), (1, changes), "refilled {refilled} times\n{}", replica.log());
    // A clock that is set back silences it no longer.
    let before = stuck.event().await.count;
    clock.set(-3_600).unwrap();
    stuck.touch().await;
    stuck.until_told().await;
    clock.set(REFILL - 3_600).unwrap();
    stuck.touch().await;
    let is_told = is_told("stuck", REASON);
    stuck.world.until_event(|event| is_told(event) && event.count > before).await;
    drop((replica, proxy, plane));

    let programs = Programs::from_env().unwrap();
    let plane = ControlPlane::start_with(programs, Manager::BinderAlone, &[UNPROTECTED]).await.unwrap();
    let mut stuck = Stuck::new(&plane).await;
    stuck.story().await;
    assert_eq!(told, stuck.told().await);
}

/// Creates a pod that uses a claim. Nobody schedules it.
async fn create_pod(pods: &Api<Pod>, name: &str, claim: &str) {
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "c", "image": "bindery.test/none:1"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
        },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

// Upstream's binder is not compared with: it tells again at each resync, and whether a message that was there
// before is then combined or an event of its own is left to the order of a Go map.
#[tokio::test]
async fn what_is_told_of_a_claim_in_ever_other_words_is_combined() {
    const PODS: usize = MESSAGES + 4;
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::Off).await.unwrap();
    let (world, client) = (World::new(&plane).await, plane.client().await.unwrap());
    // A new term would tell once more of every claim.
    let lease = ["--lease-duration=60".to_owned()];
    let replica = Replica::start_with(&plane.kubeconfig(), "first", &lease, &[]);
    let delayed = json!({"provisioner": "vendor.example/csi", "volumeBindingMode": "WaitForFirstConsumer"});
    world.create_class_with("delayed", delayed).await;
    world.create_claim_of("delayed", "waits", None).await;
    world.until_event(is_told("waits", "WaitForFirstConsumer")).await;
    let is_told = is_told("waits", "WaitForPodScheduled");
    for number in 0..PODS {
        // Each is in the text with all before it.
        let pod = format!("pod-{number:02}");
        create_pod(&Api::default_namespaced(client.clone()), &pod, "waits").await;
        world.until_event(|event| is_told(event) && event.message.as_ref().unwrap().contains(&pod)).await;
    }
    let events = Api::<Event>::default_namespaced(client).list(&ListParams::default()).await.unwrap();
    let events = events.into_iter().filter(|event| is_told(event));
    let is_combined = |event: &Event| event.message.as_ref().unwrap().starts_with(COMBINED);
    let (combined, others): (Vec<_>, Vec<_>) = events.partition(is_combined);
    let count = |event: &Event| usize::try_from(event.count.unwrap()).unwrap();
    let counts = |events: &[Event]| events.iter().map(count).collect::<Vec<_>>();
    assert_eq!(counts(&others), [1; MESSAGES - 1], "{others:#?}\n{}", replica.log());
    assert_eq!(counts(&combined), [PODS - (MESSAGES - 1)], "{combined:#?}\n{}", replica.log());
    let message = combined[0].message.as_ref().unwrap();
    assert!(message.contains(&format!("pod-{:02}", PODS - 1)), "{message}");
}

/// An API server that refuses the first event.
#[derive(Default)]
struct Forbidding(AtomicBool);

impl Weather for Forbidding {
    fn before(&self, asked: &Asked) -> Before {
        let is_event = asked.method == Method::POST && asked.path.ends_with("/events");
        if !is_event || self.0.swap(true, Ordering::Relaxed) {
            return Before::Pass;
        }
        Before::Refuse { status: StatusCode::FORBIDDEN, retry_after: None }
    }
}

#[tokio::test]
async fn what_keeps_a_claim_waiting_can_be_read_at_any_time() {
    /// Seconds after which the API server deletes an event that is not written again.
    const TTL: i64 = 10;
    let programs = Programs::from_env().unwrap();
    let further = format!("--event-ttl={TTL}s");
    let plane = ControlPlane::start_with(programs, Manager::Off, &[&further]).await.unwrap();
    let (world, proxy) = (World::new(&plane).await, Proxy::start(&plane).await.unwrap());
    proxy.set_weather(Forbidding::default());
    // A new term would tell of every claim once more.
    let further = ["--event-refresh=2", "--lease-duration=60"].map(str::to_owned);
    let mut replica = Replica::start_with(&proxy.kubeconfig(), "first", &further, &[]);
    world.create_claim("refused", "1Ti").await;
    replica.until_metrics("bindery_events_dropped_total{cause=\"forbidden\"} 1\n").await;
    let delayed = json!({"provisioner": "vendor.example/csi", "volumeBindingMode": "WaitForFirstConsumer"});
    world.create_class_with("delayed", delayed).await;
    world.create_claim_of("delayed", "delayed", None).await;
    for (claim, reason) in [("refused", REASON), ("delayed", "WaitForFirstConsumer")] {
        world.until_event(is_told(claim, reason)).await;
    }
    let events = Api::<Event>::default_namespaced(plane.client().await.unwrap());
    let mut events = pin!(watcher(events, watcher::Config::default()));
    let outlived = async {
        let mut outlived = BTreeSet::new();
        while outlived.len() < 2 {
            match events.next().await.unwrap().unwrap() {
                watcher::Event::Delete(event) => panic!("it has expired: {event:?}\n{}", replica.log()),
                watcher::Event::Apply(event) | watcher::Event::InitApply(event) => {
                    let [first, last] = [event.first_timestamp, event.last_timestamp].map(Option::unwrap);
                    if (last.0.as_second() - first.0.as_second()) > 2 * TTL {
                        outlived.insert(event.involved_object.name);
                    }
                }
                watcher::Event::Init | watcher::Event::InitDone => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, outlived).await.expect("both are told of again and again");
}

/// An API server that answers no event while anybody waits for it, and tells that one has come.
struct Deaf(watch::Sender<bool>);

impl Weather for Deaf {
    fn before(&self, asked: &Asked) -> Before {
        if asked.method != Method::POST || !asked.path.ends_with("/events") {
            return Before::Pass;
        }
        self.0.send_replace(true);
        Before::Delay(Duration::from_secs(3_600))
    }
}

#[tokio::test]
async fn who_ends_does_not_wait_for_events_that_nobody_takes() {
    let plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::Off).await.unwrap();
    let (world, proxy) = (World::new(&plane).await, Proxy::start(&plane).await.unwrap());
    let mut replica = Replica::start_with(&proxy.kubeconfig(), "first", &[], &[]);
    replica.until_leading().await;
    let (sender, mut has_come) = watch::channel(false);
    proxy.set_weather(Deaf(sender));
    world.create_claim("waits", "1Gi").await;
    tokio::time::timeout(PATIENCE, has_come.wait_for(|has_come| *has_come)).await.unwrap().unwrap();
    replica.signal(Signal::TERM);
    assert!(replica.wait().await.success());
    let log = replica.log();
    assert!(log.contains("events that were not written yet are lost"), "{log}");
}
