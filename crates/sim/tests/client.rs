//! The simulator under a `kube::Client`, in process and over a socket.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use bindery_sim::{FaultRule, Sim, SimOptions, Verb};
use futures::{StreamExt, TryStreamExt};
use http::HeaderValue;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::client::Body;
use kube::runtime::watcher;
use kube::{Client, Config, ResourceExt};
use serde_json::{Value, json};

fn sim() -> Sim {
    Sim::new(SimOptions::default())
}

fn client(sim: &Sim) -> Client {
    Client::new(sim.service(), "default")
}

fn volume(name: &str) -> PersistentVolume {
    serde_json::from_value(bindery_kit::json::volume(name, json!({}))).unwrap()
}

#[track_caller]
fn refusal<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> (u16, String) {
    match result.unwrap_err() {
        kube::Error::Api(status) => (status.code, status.reason.clone()),
        other => panic!("not a refusal by the API: {other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_created_updated_bound_and_deleted() {
    let sim = sim();
    let volumes: Api<PersistentVolume> = Api::all(client(&sim));
    let created = volumes.create(&PostParams::default(), &volume("v1")).await.unwrap();
    assert_eq!(created.finalizers(), ["kubernetes.io/pv-protection"]);
    let status = created.status.as_ref().unwrap();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!(created.creation_timestamp().unwrap().0.to_string(), "2026-01-01T00:00:00Z");

    let mut stale = created.clone();
    let mut fresh = created.clone();
    fresh.labels_mut().insert("tier".to_owned(), "a".to_owned());
    let fresh = volumes.replace("v1", &PostParams::default(), &fresh).await.unwrap();
    assert_ne!(fresh.resource_version(), created.resource_version());
    stale.labels_mut().insert("tier".to_owned(), "b".to_owned());
    let refused = volumes.replace("v1", &PostParams::default(), &stale).await;
    assert_eq!(refusal(refused), (409, "Conflict".to_owned()));

    let bound = json!({"status": {"phase": "Bound"}});
    let bound = volumes.patch_status("v1", &PatchParams::default(), &Patch::Merge(bound)).await.unwrap();
    assert_eq!(bound.status.unwrap().phase.as_deref(), Some("Bound"));
    let pending = volumes.delete("v1", &DeleteParams::default()).await.unwrap().unwrap_left();
    assert!(pending.metadata.deletion_timestamp.is_some());
    let released = json!({"status": {"phase": "Released"}});
    volumes.patch_status("v1", &PatchParams::default(), &Patch::Merge(released)).await.unwrap();
    assert_eq!(refusal(volumes.get("v1").await), (404, "NotFound".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_watch_sends_changes_and_a_bookmark() {
    let sim = sim();
    let volumes: Api<PersistentVolume> = Api::all(client(&sim));
    let start = sim.revision().to_string();
    volumes.create(&PostParams::default(), &volume("v1")).await.unwrap();
    let params = WatchParams::default().timeout(30);
    let mut stream = volumes.watch(&params, &start).await.unwrap().boxed();
    assert!(matches!(stream.try_next().await.unwrap(), Some(WatchEvent::Added(v)) if v.name_any() == "v1"));
    sim.remove("persistentvolumes", None, "v1");
    let gone = stream.try_next().await.unwrap();
    let Some(WatchEvent::Deleted(gone)) = gone else { panic!("no deletion: {gone:?}") };
    assert_eq!(gone.resource_version(), Some(sim.revision().to_string()));
    // kube requests bookmarks; the last one comes shortly before the watch ends.
    let Some(WatchEvent::Bookmark(bookmark)) = stream.try_next().await.unwrap() else {
        panic!("no bookmark")
    };
    assert_eq!(bookmark.metadata.resource_version, sim.revision().to_string());
    assert!(stream.try_next().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watcher_sees_objects_with_and_without_streaming_lists() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let sim = sim();
        let volumes: Api<PersistentVolume> = Api::all(client(&sim));
        volumes.create(&PostParams::default(), &volume("v1")).await.unwrap();
        let mut stream = watcher(volumes.clone(), config).boxed();
        let mut events = Vec::new();
        while !matches!(events.last(), Some(watcher::Event::InitDone)) {
            events.push(stream.try_next().await.unwrap().unwrap());
        }
        assert!(
            events.iter().any(|event| matches!(event, watcher::Event::InitApply(v) if v.name_any() == "v1"))
        );
        volumes.create(&PostParams::default(), &volume("v2")).await.unwrap();
        let event = stream.try_next().await.unwrap();
        assert!(matches!(event, Some(watcher::Event::Apply(ref v)) if v.name_any() == "v2"), "{event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_fails_delays_or_loses_the_answer_of_one_request() {
    let sim = sim();
    let volumes: Api<PersistentVolume> = Api::all(client(&sim));
    sim.faults().add(FaultRule::api_error("create", "persistentvolumes", "injected"));
    match volumes.create(&PostParams::default(), &volume("v1")).await {
        Err(kube::Error::Api(status)) => {
            assert_eq!((status.code, status.message.as_str()), (500, "injected"));
        }
        other => panic!("{other:?}"),
    }
    sim.faults().add(FaultRule::new("create", "persistentvolumes").lose_answer());
    volumes.create(&PostParams::default(), &volume("v1")).await.unwrap_err();
    assert!(sim.object("persistentvolumes", None, "v1").is_some());
    sim.faults().add(FaultRule::new("get", "persistentvolumes").delay(Duration::from_secs(7)));
    let before = tokio::time::Instant::now();
    volumes.get("v1").await.unwrap();
    assert_eq!(before.elapsed(), Duration::from_secs(7));
    let log: Vec<(Verb, u16)> = sim.take_requests().iter().map(|record| (record.verb, record.code)).collect();
    assert_eq!(log, [(Verb::Create, 500), (Verb::Create, 201)]);
}

/// Sends a request without body, and returns the head of the answer.
async fn ask(sim: &Sim, method: &str, uri: &str) -> http::response::Parts {
    let request = http::Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
    client(sim).send(request).await.unwrap().into_parts().0
}

#[tokio::test(start_paused = true)]
async fn a_busy_fault_answers_429_with_retry_after() {
    let sim = sim();
    sim.faults().add(FaultRule::new("list", "persistentvolumes").busy(7));
    let refused = ask(&sim, "GET", "/api/v1/persistentvolumes").await;
    assert_eq!((refused.status.as_u16(), &refused.headers["retry-after"]), (429, &HeaderValue::from(7)));
    assert_eq!(ask(&sim, "GET", "/api/v1/persistentvolumes").await.status.as_u16(), 200);
}

#[tokio::test(start_paused = true)]
async fn numbers_of_any_size_are_accepted() {
    let sim = sim();
    sim.put(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    }));
    let (least, most) = (i64::MIN, i64::MAX);
    for (query, code) in [
        (format!("limit={most}"), 200),
        (format!("limit={least}"), 200),
        (format!("resourceVersion={}", u64::MAX), 504),
        (format!("watch=true&timeoutSeconds={most}"), 200),
        (format!("watch=true&timeoutSeconds={least}"), 200),
        (format!("watch=true&resourceVersion={}", u64::MAX), 504),
    ] {
        let answer = ask(&sim, "GET", &format!("/api/v1/pods?{query}")).await;
        assert_eq!(answer.status.as_u16(), code, "{query}");
    }
    let deletion = || {
        let pod = sim.object("pods", Some("default"), "p").unwrap();
        let metadata = &pod["metadata"];
        (metadata["deletionTimestamp"].clone(), metadata["deletionGracePeriodSeconds"].clone())
    };
    // The last representable instant, then a grace period that is one second shorter.
    for seconds in [most, most - 1] {
        let path = format!("/api/v1/namespaces/default/pods/p?gracePeriodSeconds={seconds}");
        assert_eq!(ask(&sim, "DELETE", &path).await.status.as_u16(), 200);
        assert_eq!(deletion(), (json!("9999-12-30T22:00:00Z"), json!(seconds)));
    }
    assert_eq!(
        ask(&sim, "DELETE", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=7").await.status,
        200
    );
    assert_eq!(deletion(), (json!("2026-01-01T00:00:00Z"), json!(7)));
}

#[tokio::test(start_paused = true)]
async fn objects_seeded_before_an_error_are_watched_and_protected() {
    let sim = sim();
    let volumes: Api<PersistentVolume> = Api::all(client(&sim));
    let start = sim.revision().to_string();
    let mut stream = volumes.watch(&WatchParams::default().timeout(30), &start).await.unwrap().boxed();
    let good = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v1"}});
    sim.seed([good, json!({"apiVersion": "v1", "kind": "Nothing", "metadata": {"name": "n"}})]).unwrap_err();
    let event = stream.try_next().await.unwrap();
    assert!(matches!(event, Some(WatchEvent::Added(ref v)) if v.name_any() == "v1"), "{event:?}");
    let finalizers = sim.object("persistentvolumes", None, "v1").unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["kubernetes.io/pv-protection"]));
}

#[tokio::test]
async fn a_watch_over_a_socket_ends_with_the_server() {
    let sim = sim();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(sim.clone().serve(listener, async move {
        stopped.await.ok();
    }));
    let config = Config::new(format!("http://{address}").parse().unwrap());
    let volumes: Api<PersistentVolume> = Api::all(Client::try_from(config).unwrap());
    volumes.create(&PostParams::default(), &volume("v1")).await.unwrap();
    let mut stream = volumes.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    assert!(matches!(stream.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    stop.send(()).unwrap();
    assert!(stream.try_next().await.unwrap().is_none(), "the watch ends with the server");
    server.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_repeats_with_the_same_seed() {
    async fn run() -> Vec<Value> {
        let sim = Sim::new(SimOptions { seed: 7, ..SimOptions::default() });
        let volumes: Api<PersistentVolume> = Api::all(client(&sim));
        let mut generated = volume("x");
        generated.metadata.name = None;
        generated.metadata.generate_name = Some("pv-".to_owned());
        for _ in 0..3 {
            volumes.create(&PostParams::default(), &generated).await.unwrap();
            tokio::time::advance(Duration::from_secs(3)).await;
        }
        sim.objects("persistentvolumes")
    }
    let first = run().await;
    assert_eq!(first.len(), 3);
    assert_eq!(first, run().await);
}
