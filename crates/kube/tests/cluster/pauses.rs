//! `Retry-After` holds back all requests of one client.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bindery_controller::{Plugin as _, Port, Purpose};
use bindery_core::{ClaimKey, Lookup, Text, Volume};
use bindery_kube::plugins::HostPath;
use bindery_kube::{ApiClient, ApiPort, Events};
use bindery_sim::FaultRule;
use futures::future::join_all;
use kube::client::Body;
use tokio::time::Instant;

use crate::network::Watching;
use crate::simulated::{Cluster, claim, volume};

type Answer = http::Response<Body>;

pub(crate) fn port(cluster: &Cluster, client: &ApiClient) -> ApiPort {
    ApiPort::new(client.clone(), cluster.clock(), Events::new(client.clone()).0)
}

/// Reads claim `c1`. Returns whether that succeeded.
pub(crate) async fn read(port: &ApiPort) -> bool {
    let claim = port.read_claim(&ClaimKey::new("default", "c1"), Purpose::Guard).await;
    matches!(claim, Lookup::Found(_))
}

/// The whole seconds that a future takes, and its value.
pub(crate) async fn seconds<T>(future: impl Future<Output = T>) -> (u64, T) {
    let began = Instant::now();
    let value = future.await;
    (began.elapsed().as_secs(), value)
}

/// Refuses the next read of a claim, with `Retry-After`.
pub(crate) fn refuse_a_read(cluster: &Cluster, retry_after_seconds: u32) {
    let busy = FaultRule::new("get", "persistentvolumeclaims").including_live_reads();
    cluster.sim.faults().add(busy.busy(retry_after_seconds));
}

#[tokio::test(start_paused = true)]
async fn a_refused_read_holds_back_all_later_requests() {
    let cluster = Cluster::with([claim("c1"), volume("v1")]);
    let client = ApiClient::from(cluster.client());
    let (one, other, name) = (port(&cluster, &client), port(&cluster, &client), Text::from("v1"));
    // A misconfigured proxy may ask for a day.
    for (asked, waited) in [(7, 7), (32, 32), (86_400, 60)] {
        refuse_a_read(&cluster, asked);
        assert_eq!(seconds(read(&one)).await, (0, false));
        let volume = seconds(other.read_volume(&name, Purpose::Engine)).await;
        assert!(matches!(volume, (took, Lookup::Found(_)) if took == waited), "{asked} s: {volume:?}");
        assert_eq!(seconds(read(&one)).await, (0, true));
    }
    assert_eq!((one.pressure().refused, other.pressure().refused), (3, 3));
}

/// As by the EventRateLimit admission, which is about one kind of request.
#[tokio::test(start_paused = true)]
async fn a_refusal_without_retry_after_holds_back_no_other_request() {
    let cluster = Cluster::with([claim("c1")]);
    let port = port(&cluster, &cluster.client().into());
    let limited = FaultRule::new("get", "persistentvolumeclaims").including_live_reads();
    cluster.sim.faults().add(limited.fail(429, "TooManyRequests", "limit reached"));
    assert_eq!(seconds(read(&port)).await, (0, false));
    assert_eq!(seconds(read(&port)).await, (0, true));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_permit_also_heeds_retry_after() {
    let cluster = Cluster::with([claim("c1")]);
    let port = port(&cluster, &cluster.client().into());
    let limit = port.pressure().limit;
    let busy = FaultRule::new("get", "persistentvolumeclaims").including_live_reads();
    cluster.sim.faults().add(busy.times(limit).busy(5));
    let reads = (0..limit + 8).map(|_| seconds(read(&port)));
    // All are sent before one is answered; tokio's budget would interrupt this task in between.
    let answers = tokio::task::unconstrained(join_all(reads)).await;
    let refused = answers.iter().filter(|answer| **answer == (0, false)).count();
    let waited = answers.iter().filter(|answer| **answer == (5, true)).count();
    assert_eq!((refused, waited), (limit, 8), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn plugins_and_port_share_one_limit() {
    let cluster = Cluster::with([volume("v1")]);
    let client = ApiClient::from(cluster.client());
    let port = port(&cluster, &client);
    let Lookup::Found(known) = port.read_volume(&"v1".into(), Purpose::Engine).await else {
        panic!("it is there")
    };
    // The volume was replaced by another one of its name, so nothing is deleted.
    let known = Volume { uid: "another".into(), ..Volume::clone(&known) };
    let plugin = HostPath::new(client, Some("/nowhere".into()), None);
    cluster.sim.faults().add(FaultRule::new("get", "persistentvolumes").delay(Duration::from_secs(5)));
    let asks = cluster.until("it asks", || port.pressure().in_flight == 1);
    let (deleted, ()) = tokio::join!(plugin.delete(&known), asks);
    deleted.unwrap_err();
    assert_eq!(port.pressure().in_flight, 0);
}

/// The answers of a proxy that ends every watch at once.
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
async fn a_watch_that_ends_at_once_is_opened_again_after_a_pause() {
    let (cluster, watches) = (Cluster::new(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&watches);
    let service = tower::service_fn(move |request| hang_up(request, Arc::clone(&counted)));
    let client = ApiClient::from(kube::Client::new(service, "default"));
    let watching = Watching::start(&cluster, &client);
    let minute = tokio::time::timeout(Duration::from_secs(60), std::future::pending::<()>());
    assert!(minute.await.is_err());
    let (asked, failed) = (watches.load(Ordering::Relaxed), watching.binder.metrics().watch_failures.get());
    assert!((10..100).contains(&asked), "{asked} watches in a minute");
    assert!(failed > 0 && failed <= asked as u64, "{failed} of {asked} count as failed");
}

/// Lists and watches wait for `Retry-After`, and not for their own backoff of 0.8 s.
#[tokio::test(start_paused = true)]
async fn a_refused_list_is_requested_again_after_retry_after() {
    for streamed in [true, false] {
        let cluster = Cluster::with([volume("v1")]);
        let verb = if streamed { "watch" } else { "list" };
        if !streamed {
            let forbidden = FaultRule::new("watch", "persistentvolumes");
            cluster.sim.faults().add(forbidden.fail(422, "Invalid", "sendInitialEvents is forbidden"));
        }
        cluster.sim.faults().add(FaultRule::new(verb, "persistentvolumes").busy(20));
        let watching = Watching::start(&cluster, &cluster.client().into());
        let listed = cluster.until("all is listed", || watching.binder.store().synced());
        assert_eq!(seconds(listed).await.0, 20, "by {verb}");
        assert_eq!(cluster.sim.faults().pending(), 0);
    }
}
