//! Events about claims that stay stuck: the limits of client-go's `EventCorrelator`, compared with upstream's
//! binder.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bindery_cluster::{Clock, Cluster, Manager, Replica, Request, RequestFault, in_time, is_event};
use futures::StreamExt as _;
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use serde_json::{Value, json};
use tokio::sync::watch;

/// Events about one object and type that are written at once (`defaultSpamBurst`).
const BURST: i64 = 25;
/// Seconds until one more is written (`defaultSpamQPS` is 1/300).
const REFILL: i64 = 300;
/// Changes of the claim after its burst is spent.
const TOUCHES_IN_VAIN: usize = 35;
/// Changes between two volumes that come and go.
const VOLUME_EVERY: usize = 5;
/// Volumes are deleted at once, without the controller that removes their finalizers.
const UNPROTECTED: &str = "--disable-admission-plugins=StorageObjectInUseProtection";
const REASON: &str = "FailedBinding";

/// A claim that no volume fits, and what happens around it.
struct Stuck {
    cluster: Cluster,
    events: Api<Event>,
    touches: usize,
    /// Claims that were created to wait until all earlier events are written.
    barriers: usize,
}

/// The event about the stuck claim in the end.
#[derive(Debug, PartialEq, Eq)]
struct Reported {
    /// Type, reason and message; the message is upstream's to the letter.
    event: [String; 3],
    /// Its count, before time refills the bucket.
    count: i64,
}

impl Stuck {
    fn new(cluster: Cluster) -> Self {
        let events = Api::default_namespaced(cluster.client.clone());
        Self { cluster, events, touches: 0, barriers: 0 }
    }

    async fn touch(&mut self) {
        self.touches += 1;
        let field = ["annotations", "labels"][self.touches % 2];
        let change =
            Patch::Merge(json!({"metadata": {field: {"example.com/touch": self.touches.to_string()}}}));
        self.cluster.claims.patch("stuck", &PatchParams::default(), &change).await.unwrap();
    }

    /// Waits until all recorded events are written. One worker writes them in order, so the event about a new
    /// claim is the last.
    async fn until_reported(&mut self) {
        self.barriers += 1;
        let barrier = format!("barrier-{}", self.barriers);
        self.cluster.create_claim(&barrier, "1Ti").await;
        self.cluster.until_event(is_event(&barrier, REASON)).await;
    }

    /// Waits until the event about the claim has at least this count.
    async fn until_count(&self, count: i64) -> Event {
        let is_reported = is_event("stuck", REASON);
        self.cluster.until_event(|event| is_reported(event) && count_of(event) >= count).await
    }

    /// Creates a volume that is too small for the claim, and deletes it.
    async fn volume_comes_and_goes(&self) {
        let name = format!("small-{}", self.touches);
        self.cluster.create_available_volume(&name, "1Mi").await;
        self.cluster.volumes.delete(&name, &DeleteParams::default()).await.unwrap();
        self.cluster.until_no_volume(&name).await;
    }

    /// Creates the claim, changes it until its burst is spent, and then some more.
    async fn story(&mut self) {
        self.cluster.create_claim("stuck", "1Ti").await;
        for count in 1..=BURST {
            if count > 1 {
                self.touch().await;
            }
            self.until_count(count).await;
        }
        for number in 1..=TOUCHES_IN_VAIN {
            self.touch().await;
            if number % VOLUME_EVERY == 0 {
                self.volume_comes_and_goes().await;
            }
            self.until_reported().await;
        }
    }

    async fn event(&self) -> Event {
        let all = self.events.list(&ListParams::default()).await.unwrap();
        let is_about = |event: &Event| event.involved_object.name.as_deref() == Some("stuck");
        let mut events: Vec<_> = all.into_iter().filter(is_about).collect();
        assert_eq!(events.len(), 1, "{events:#?}");
        events.remove(0)
    }

    async fn reported(&self) -> Reported {
        let event = self.event().await;
        let count = count_of(&event);
        Reported { event: [event.type_, event.reason, event.message].map(Option::unwrap), count }
    }

    /// Changes the claim after the bucket was refilled by one, and then some more. Returns the event after
    /// the first change.
    async fn report_after_refill(&mut self, clock: &Clock) -> Event {
        let before = count_of(&self.event().await);
        clock.set(REFILL).unwrap();
        self.touch().await;
        let heard = self.until_count(before + 1).await;
        for _ in 0..VOLUME_EVERY {
            self.touch().await;
            self.until_reported().await;
        }
        heard
    }
}

fn count_of(event: &Event) -> i64 {
    i64::from(event.count.unwrap())
}

/// How often the bucket of an event was refilled between its first and its last write.
fn refilled(event: &Event) -> i64 {
    let [first, last] = [&event.first_timestamp, &event.last_timestamp];
    let [first, last] = [first, last].map(|time| time.as_ref().unwrap().0.as_second());
    (last - first) / REFILL
}

/// Numbers of requests that created and that changed an event about the stuck claim.
fn writes(requests: &[Request]) -> (usize, usize) {
    const EVENTS: &str = "/api/v1/namespaces/default/events";
    let is_created = |request: &&Request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        request.method == Method::POST && request.path == EVENTS && body["involvedObject"]["name"] == "stuck"
    };
    let prefix = format!("{EVENTS}/stuck.");
    let is_changed = |request: &&Request| request.method != Method::GET && request.path.starts_with(&prefix);
    (requests.iter().filter(is_created).count(), requests.iter().filter(is_changed).count())
}

#[tokio::test]
async fn a_stuck_claim_has_one_event_with_upstreams_limits_of_writes() {
    let cluster = Cluster::start_with(Manager::Off, &[UNPROTECTED]).await;
    let (proxy, clock) = (cluster.proxy().await, Clock::new().unwrap());
    let mut stuck = Stuck::new(cluster);
    // Suppressed events are only in the log.
    let log = ["--log=info,bindery_kube=debug"];
    let replica = Replica::start(&proxy.kubeconfig(), "first", &log, &clock.environment());
    stuck.story().await;
    let reported = stuck.reported().await;
    let message = "no persistent volumes available for this claim and no storage class is set";
    let event = ["Normal", REASON, message].map(str::to_owned);
    assert_eq!(reported, Reported { event, count: BURST }, "{}", replica.log());
    // There was more to report.
    let is_held_back = |line: &&str| line.contains("an event is suppressed") && line.contains("stuck");
    let held_back = replica.log().lines().filter(is_held_back).count();
    assert!(held_back >= TOUCHES_IN_VAIN, "{held_back} are held back\n{}", replica.log());
    let metrics = replica.get("/metrics").await;
    let mut dropped = metrics.lines().filter(|line| line.starts_with("bindery_events_dropped_total{"));
    assert!(dropped.all(|line| line.ends_with(" 0")), "{metrics}");

    // The next write counts the suppressed events too.
    let next = stuck.report_after_refill(&clock).await;
    let in_vain = usize::try_from(count_of(&next) - BURST).unwrap();
    assert!(in_vain > TOUCHES_IN_VAIN, "{next:#?}");
    let refilled = refilled(&stuck.event().await);
    let changes = usize::try_from(BURST - 1 + refilled).unwrap();
    assert_eq!(writes(&proxy.take_requests()), (1, changes), "refilled {refilled} times\n{}", replica.log());
    // A clock that is set back does not suppress the event.
    let before = count_of(&stuck.event().await);
    clock.set(-3_600).unwrap();
    stuck.touch().await;
    stuck.until_reported().await;
    clock.set(REFILL - 3_600).unwrap();
    stuck.touch().await;
    stuck.until_count(before + 1).await;
    drop((replica, proxy, stuck));

    let mut stuck = Stuck::new(Cluster::start_with(Manager::BinderAlone, &[UNPROTECTED]).await);
    stuck.story().await;
    assert_eq!(reported, stuck.reported().await);
}

fn creates_event(request: &Request) -> bool {
    request.method == Method::POST && request.path.ends_with("/events")
}

fn refuse_first_event() -> impl Fn(&Request) -> RequestFault {
    let has_refused = AtomicBool::new(false);
    move |request| {
        if !creates_event(request) || has_refused.swap(true, Ordering::Relaxed) {
            return RequestFault::None;
        }
        RequestFault::Refuse { status: StatusCode::FORBIDDEN, retry_after: None }
    }
}

#[tokio::test]
async fn the_event_of_a_claim_that_waits_never_expires() {
    /// Seconds after which the API server deletes an event that is not written again.
    const TTL: i64 = 30;
    let cluster = Cluster::start_with(Manager::Off, &[&format!("--event-ttl={TTL}s")]).await;
    let proxy = cluster.proxy().await;
    proxy.set_faults(refuse_first_event());
    // A new term would repeat every event.
    let further = ["--event-refresh=7", "--lease-duration=60"];
    let mut replica = Replica::behind(&proxy, "first", &further);
    cluster.create_claim("refused", "1Ti").await;
    replica.until_metrics("bindery_events_dropped_total{cause=\"forbidden\"} 1\n").await;
    let delayed = json!({"provisioner": "vendor.example/csi", "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.create_class_with("delayed", delayed).await;
    cluster.create_claim_of("delayed", "delayed", None).await;
    let explanations = [is_event("refused", REASON), is_event("delayed", "WaitForFirstConsumer")];
    for is_explanation in &explanations {
        cluster.until_event(is_explanation).await;
    }
    // An event about the missing class may come first, and expires.
    let is_explanation = |event: &Event| explanations.iter().any(|is_event| is_event(event));
    let events = Api::<Event>::default_namespaced(cluster.client.clone());
    let mut events = pin!(watcher(events, watcher::Config::default()));
    let outlived = async {
        let mut outlived = BTreeSet::new();
        while outlived.len() < 2 {
            match events.next().await.unwrap().unwrap() {
                watcher::Event::Delete(event) if is_explanation(&event) => {
                    panic!("it has expired: {event:?}\n{}", replica.log());
                }
                watcher::Event::Apply(event) | watcher::Event::InitApply(event) if is_explanation(&event) => {
                    let [first, last] = [event.first_timestamp, event.last_timestamp].map(Option::unwrap);
                    if (last.0.as_second() - first.0.as_second()) > TTL + 10 {
                        outlived.insert(event.involved_object.name);
                    }
                }
                _ => {}
            }
        }
    };
    in_time("both events are written again and again", outlived).await;
}

#[tokio::test]
async fn a_replica_that_ends_does_not_wait_for_unanswered_events() {
    let cluster = Cluster::start(Manager::Off).await;
    let proxy = cluster.proxy().await;
    let mut replica = Replica::behind(&proxy, "first", &[]);
    replica.until_leading().await;
    let (sender, mut has_come) = watch::channel(false);
    proxy.set_faults(move |request: &Request| {
        if !creates_event(request) {
            return RequestFault::None;
        }
        sender.send_replace(true);
        RequestFault::Delay(Duration::from_secs(3_600))
    });
    cluster.create_claim("waits", "1Gi").await;
    in_time("an event", has_come.wait_for(|has_come| *has_come)).await.unwrap();
    replica.terminate().await;
    let log = replica.log();
    assert!(log.contains("events that were not written yet are lost"), "{log}");
}
