//! Faults and overload: requests pass, and are counted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use bindery_admission_tests::{Replica, claim, create, volume, warnings};
use bindery_controller::{Reads, ReviewError, Reviewed};
use bindery_core::{Cluster, Decision, EngineFault, Finding, Outcome, Rule, Source, Subject};
use bindery_kit::{Blocking, Fails, Logged, Scripted, policy};
use bindery_policy::{Chain, Policy};
use bindery_webhook::{AdmissionMetrics, AdmissionSettings, BODY_MAX, PATH, Reviewer, admission};
use futures::{StreamExt as _, stream};
use http_body_util::BodyExt as _;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tower::ServiceExt as _;
use tracing::level_filters::LevelFilter;

#[tokio::test]
async fn a_failing_engine_denies_nothing() {
    type Engine = fn(&bindery_core::Request, &mut dyn Cluster) -> Result<Decision, EngineFault>;
    let engines: [(Engine, &str); 4] = [
        (|_, _| Err(EngineFault::Trapped("unreachable".to_owned())), "engine"),
        (|_, _| panic!("an engine that panics, as this test wants"), "bug"),
        (
            |request, _| {
                let Subject::ReviewClaim { new, .. } = &request.subject else { unreachable!("a claim") };
                let action = bindery_core::Action::EnqueueClaim(new.key.clone());
                Ok(Decision::new(vec![action.into()], Outcome::Done))
            },
            "engine",
        ),
        (
            |_, cluster| {
                // Each claim names another volume, but all of them are read live.
                for at in 0.. {
                    cluster.volume(Source::Live, format!("v{at}").into())?;
                }
                Ok(Decision::done())
            },
            "engine",
        ),
    ];
    for (engine, cause) in engines {
        let replica = Replica::new(Arc::new(Scripted(engine)), AdmissionSettings::default());
        for count in 1..=2 {
            let response = replica.response(&create(&claim("c", "1Gi", json!({})))).await;
            assert_eq!(response["allowed"], json!(true));
            let told = warnings(&response);
            assert!(
                told.len() == 1 && told[0].starts_with("Bindery has not checked this request"),
                "{told:?}"
            );
            let counted = format!("bindery_admission_faults_total{{cause=\"{cause}\"}} {count}\n");
            assert!(replica.scrape().contains(&counted), "no {counted} in {}", replica.scrape());
        }
        let ended = "bindery_admission_reviews_total{kind=\"claim\",outcome=\"faulted\"} 2\n";
        assert!(replica.scrape().contains(ended), "{}", replica.scrape());
    }
}

#[tokio::test]
async fn a_policy_that_fails_or_does_not_answer_in_time_lets_the_request_pass() {
    let barrier = Arc::new(Barrier::new(2));
    let missing = Policy { matcher: Err("the module is missing".to_owned()), ..policy("missing", Fails) };
    for (policy, why, cause) in [
        (policy("fails", Fails), "a policy gave no answer", "policy"),
        (missing, "a policy gave no answer", "policy"),
        (policy("blocks", Blocking(Arc::clone(&barrier))), "it took too long", "overdue"),
    ] {
        let free = volume("v", "1Gi", json!({}));
        let replica = Replica::with_policies(Chain::new(vec![policy])).having(&[free]);
        let response = replica.response(&create(&claim("c", "1Gi", json!({"volumeName": "v"})))).await;
        assert_eq!(response["allowed"], json!(true));
        assert_eq!(warnings(&response), [format!("Bindery has not checked this request: {why}")]);
        let counted = format!("bindery_admission_faults_total{{cause=\"{cause}\"}} 1\n");
        assert!(replica.scrape().contains(&counted), "no {counted} in {}", replica.scrape());
    }
    // The blocked call ends.
    barrier.wait();
    barrier.wait();
}

#[tokio::test]
async fn a_starting_replica_denies_nothing_and_logs_what_passes() {
    let log = Logged::from(LevelFilter::INFO);
    let replica = Replica::starting(Arc::new(bindery_engine::DefaultEngine), AdmissionSettings::default());
    replica.see(&volume("v", "1Gi", json!({})));
    let review = create(&claim("c", "8Gi", json!({"volumeName": "v"})));
    let response = replica.response(&review).await;
    assert_eq!(response["allowed"], json!(true));
    assert_eq!(warnings(&response), ["Bindery has not checked this request: it is starting"]);
    assert!(replica.scrape().contains("bindery_admission_faults_total{cause=\"not_ready\"} 1\n"));
    let log = log.text();
    for part in ["object=persistentvolumeclaim ns/c", "uid=uid-c", response["uid"].as_str().unwrap()] {
        assert!(log.contains(part), "no {part:?} in {log}");
    }
}

/// A reviewer that waits for a permit.
struct Slow(Semaphore);

impl Reviewer for Slow {
    async fn review(&self, _: Reviewed, _: Reads) -> Result<Vec<Finding>, ReviewError> {
        let _ = self.0.acquire().await;
        Ok(Vec::new())
    }
}

/// Admission with a slow reviewer, for two reviews at a time.
fn slow_admission(metrics: &AdmissionMetrics) -> (Arc<Slow>, axum::Router) {
    let slow = Arc::new(Slow(Semaphore::new(0)));
    let settings = AdmissionSettings { in_flight_max: 2, ..AdmissionSettings::default() };
    (Arc::clone(&slow), admission(slow, settings, metrics.clone(), None))
}

fn scrape(metrics: &AdmissionMetrics) -> String {
    let (mut registry, mut told) = (Registry::default(), String::new());
    metrics.register(&mut registry);
    text::encode(&mut told, &registry).unwrap();
    told
}

/// Sends a body for an API server that waits for ten seconds.
async fn post(router: axum::Router, body: impl Into<Body>) -> (StatusCode, Value, String) {
    let request = Request::post(format!("{PATH}?timeout=10s")).body(body.into()).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    (status, serde_json::from_str(&text).unwrap_or_default(), text)
}

#[tokio::test(start_paused = true)]
async fn reviews_beyond_the_limit_pass_and_slow_ones_end_in_time() {
    let metrics = AdmissionMetrics::default();
    let (slow, router) = slow_admission(&metrics);
    let review = create(&claim("c", "1Gi", json!({}))).to_string();
    let began = tokio::time::Instant::now();
    let slow_ones: Vec<_> = (0..2).map(|_| tokio::spawn(post(router.clone(), review.clone()))).collect();
    // Both have begun now.
    tokio::task::yield_now().await;
    let (status, answer, _) = post(router.clone(), review.clone()).await;
    assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    assert_eq!(
        warnings(&answer["response"]),
        ["Bindery has not checked this request: too many are under way"]
    );
    assert_eq!(began.elapsed(), std::time::Duration::ZERO, "a request beyond the limit does not wait");
    for task in slow_ones {
        let (_, answer, _) = task.await.unwrap();
        assert_eq!(warnings(&answer["response"]), ["Bindery has not checked this request: it took too long"]);
    }
    assert_eq!(began.elapsed().as_secs(), 5, "half of the time that the API server waits");
    let told = scrape(&metrics);
    for counted in [
        "admission_shed_total 1\n",
        "admission_faults_total{cause=\"overdue\"} 2\n",
        "admission_reviews_total{kind=\"claim\",outcome=\"shed\"} 1\n",
    ] {
        assert!(told.contains(counted), "no {counted} in {told}");
    }
    // Then there is room again.
    slow.0.add_permits(1);
    let (_, answer, _) = post(router, review).await;
    assert_eq!(answer["response"], json!({"uid": answer["response"]["uid"], "allowed": true}));
}

/// A body whose rest does not come.
fn unfinished(start: &'static [u8]) -> Body {
    let start = stream::iter((!start.is_empty()).then(|| Ok(Bytes::from_static(start))));
    Body::from_stream(start.chain(stream::pending::<Result<Bytes, std::io::Error>>()))
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_given_up_after_a_second() {
    let metrics = AdmissionMetrics::default();
    let (slow, router) = slow_admission(&metrics);
    slow.0.add_permits(1);
    let began = tokio::time::Instant::now();
    let waiting: Vec<_> = (0..100).map(|_| tokio::spawn(post(router.clone(), unfinished(b"")))).collect();
    tokio::task::yield_now().await;
    let (status, answer, _) = post(router, create(&claim("c", "1Gi", json!({}))).to_string()).await;
    assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    for ended in futures::future::join_all(waiting).await {
        assert_eq!(ended.unwrap().0, StatusCode::REQUEST_TIMEOUT);
    }
    assert_eq!(began.elapsed().as_secs(), 1, "however long the caller says that it waits");
    assert!(scrape(&metrics).contains("admission_shed_total 0\n"));
}

/// Sends `begun` unfinished bodies, and then a complete body of `bytes`. Six unfinished bodies are refused
/// for later ones, and the oldest remaining one for the complete body.
async fn oldest_is_given_up(begun: usize, start: &'static [u8], bytes: usize) {
    let metrics = AdmissionMetrics::default();
    let (slow, router) = slow_admission(&metrics);
    slow.0.add_permits(1);
    let waiting: Vec<_> = (0..begun).map(|_| tokio::spawn(post(router.clone(), unfinished(start)))).collect();
    while !scrape(&metrics).contains("admission_shed_total 6\n") {
        tokio::task::yield_now().await;
    }
    let (status, answer, _) = post(router, padded("c", bytes)).await;
    assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    let ended = futures::future::join_all(waiting).await;
    let statuses: Vec<_> = ended.into_iter().map(|ended| ended.unwrap().0).collect();
    let (given_up, overdue) = statuses.split_at(7);
    assert!(given_up.iter().all(|status| *status == StatusCode::SERVICE_UNAVAILABLE), "{statuses:?}");
    assert!(overdue.iter().all(|status| *status == StatusCode::REQUEST_TIMEOUT), "{statuses:?}");
    assert!(scrape(&metrics).contains("admission_shed_total 7\n"));
}

#[tokio::test(start_paused = true)]
async fn of_requests_without_a_body_the_oldest_is_given_up() {
    // The whole budget, from which each request takes 8 KiB.
    oldest_is_given_up(BODIES_MAX / (8 * 1024) + 6, b"", 1024).await;
}

#[tokio::test(start_paused = true)]
async fn of_bodies_that_come_in_part_the_oldest_is_given_up() {
    const MIB: &[u8] = &[b' '; 1024 * 1024];
    // What large bodies may take of the budget.
    oldest_is_given_up((BODIES_MAX - SMALL_RESERVE) / MIB.len() + 6, MIB, MIB.len()).await;
}

/// The body budget, what large bodies leave of it, and the largest body that is small.
const BODIES_MAX: usize = 12 * 1024 * 1024;
const SMALL_RESERVE: usize = 4 * 1024 * 1024;
const SMALL_MAX: usize = 16 * 1024;

/// The review of a claim of this name, with spaces after it up to this many bytes.
fn padded(name: &str, bytes: usize) -> Bytes {
    let mut review = create(&claim(name, "1Gi", json!({}))).to_string();
    review.extend(std::iter::repeat_n(' ', bytes - review.len()));
    review.into()
}

#[tokio::test(start_paused = true)]
async fn bodies_under_review_keep_their_bytes_of_the_budget() {
    const BODIES: usize = BODIES_MAX / SMALL_MAX;
    let metrics = AdmissionMetrics::default();
    let slow = Arc::new(Slow(Semaphore::new(0)));
    let settings = AdmissionSettings { in_flight_max: BODIES + 1, ..AdmissionSettings::default() };
    let router = admission(Arc::clone(&slow), settings, metrics.clone(), None);
    let small = || padded("c", SMALL_MAX);
    let held: Vec<_> = (0..BODIES).map(|_| tokio::spawn(post(router.clone(), small()))).collect();
    for _ in 0..BODIES {
        tokio::task::yield_now().await;
    }
    let (status, _, text) = post(router.clone(), small()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text, "too many requests are under way; this one was not reviewed\n");
    slow.0.add_permits(BODIES);
    for answered in futures::future::join_all(held).await {
        let (status, answer, _) = answered.unwrap();
        assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    }
    let told = scrape(&metrics);
    for counted in ["shed_total 1\n", "kind=\"claim\",outcome=\"allowed\"} 768\n"] {
        assert!(told.contains(counted), "no {counted} in {told}");
    }
}

/// A reviewer that never finishes claims called `large`.
struct Thorough;

impl Reviewer for Thorough {
    async fn review(&self, reviewed: Reviewed, _: Reads) -> Result<Vec<Finding>, ReviewError> {
        match reviewed {
            Reviewed::Claim { new, .. } if &*new.key.name == "large" => std::future::pending().await,
            _ => Ok(Vec::new()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn large_bodies_under_review_leave_room_for_small_ones() {
    let metrics = AdmissionMetrics::default();
    let router = admission(Arc::new(Thorough), AdmissionSettings::default(), metrics.clone(), None);
    let large = || tokio::spawn(post(router.clone(), padded("large", BODY_MAX)));
    let reviewed = [large(), large()];
    tokio::task::yield_now().await;
    assert_eq!(large().await.unwrap().0, StatusCode::SERVICE_UNAVAILABLE);
    for _ in 0..300 {
        let (_, answer, _) = post(router.clone(), padded("small", SMALL_MAX)).await;
        assert_eq!(answer["response"], json!({"uid": answer["response"]["uid"], "allowed": true}));
    }
    for answered in futures::future::join_all(reviewed).await {
        let told = warnings(&answered.unwrap().1["response"]);
        assert_eq!(told, ["Bindery has not checked this request: it took too long"]);
    }
    assert!(scrape(&metrics).contains("shed_total 1\n"), "{}", scrape(&metrics));
    let (_, answer, _) = post(router, padded("c", BODY_MAX)).await;
    assert_eq!(answer["response"], json!({"uid": answer["response"]["uid"], "allowed": true}));
}

/// A reviewer that panics before its future exists.
struct Broken;

impl Reviewer for Broken {
    fn review(
        &self,
        reviewed: Reviewed,
        _: Reads,
    ) -> impl Future<Output = Result<Vec<Finding>, ReviewError>> + Send {
        let findings = match reviewed {
            Reviewed::Claim { .. } => panic!("a bug, as this test wants"),
            Reviewed::Volume { .. } => Vec::new(),
        };
        std::future::ready(Ok(findings))
    }
}

#[tokio::test]
async fn a_review_that_panics_lets_the_request_pass() {
    let log = Logged::from(LevelFilter::INFO);
    let metrics = AdmissionMetrics::default();
    let router = admission(Arc::new(Broken), AdmissionSettings::default(), metrics.clone(), None);
    let review = create(&claim("c", "1Gi", json!({}))).to_string();
    let (status, answer, _) = post(router, review).await;
    assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    assert_eq!(warnings(&answer["response"]), ["Bindery has not checked this request: it failed"]);
    let told = scrape(&metrics);
    for counted in ["faults_total{cause=\"bug\"} 1\n", "kind=\"claim\",outcome=\"faulted\"} 1\n"] {
        assert!(told.contains(counted), "no {counted} in {told}");
    }
    assert!(log.text().contains("object=persistentvolumeclaim ns/c"), "{}", log.text());
}

/// A reviewer that denies everything, and counts live reviews at the same time.
#[derive(Default)]
struct CountingLive {
    live: AtomicUsize,
    most: AtomicUsize,
}

impl Reviewer for CountingLive {
    async fn review(&self, _: Reviewed, reads: Reads) -> Result<Vec<Finding>, ReviewError> {
        if reads == Reads::Live {
            self.most.fetch_max(self.live.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
        let (volume, found, wanted) = ("v".into(), "1Gi".into(), "8Gi".into());
        Ok(vec![Finding { rule: Rule::VolumeTooSmall, volume, claim: None, found, wanted }])
    }
}

#[tokio::test(start_paused = true)]
async fn hundreds_of_denials_read_live_sixteen_at_a_time() {
    let counting = Arc::new(CountingLive::default());
    let router =
        admission(Arc::clone(&counting), AdmissionSettings::default(), AdmissionMetrics::default(), None);
    let review = create(&claim("c", "8Gi", json!({"volumeName": "v"}))).to_string();
    let asked = (0..200).map(|_| tokio::spawn(post(router.clone(), review.clone())));
    for answered in futures::future::join_all(asked).await {
        assert_eq!(answered.unwrap().1["response"]["allowed"], json!(false));
    }
    assert_eq!(counting.most.load(Ordering::Relaxed), 16);
}

#[tokio::test]
async fn a_body_too_large_is_refused_with_or_without_a_length() {
    let replica = Replica::default();
    let large = || Bytes::from(vec![b' '; BODY_MAX + 1]);
    assert_eq!(replica.send(large()).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let pieces: Vec<_> =
        large().chunks(64 * 1024).map(Bytes::copy_from_slice).map(Ok::<_, std::io::Error>).collect();
    let unsized_body = Body::from_stream(stream::iter(pieces).boxed());
    assert_eq!(replica.send(unsized_body).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(replica.scrape().contains("bindery_admission_bad_requests_total 2\n"), "{}", replica.scrape());
    assert_eq!(replica.response(&create(&claim("c", "1Gi", json!({})))).await["allowed"], json!(true));
}
