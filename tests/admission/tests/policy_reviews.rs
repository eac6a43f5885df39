//! Reviews of policies that are cluster objects: how many run at a time, and how one that fails is answered.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use bindery_admission_tests::{create, warnings};
use bindery_controller::{Reads, ReviewError, Reviewed};
use bindery_core::Finding;
use bindery_webhook::{
    AdmissionMetrics, AdmissionSettings, POLICY_PATH, PolicyFinding, PolicyReviewer, ReviewPermit, Reviewer,
    admission,
};
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// How many reviews may run at a time.
const MAX: usize = 2;
const NOT_CHECKED: &str = "Bindery has not checked it: the status will say whether it works";

/// A reviewer of claims that finds nothing.
struct NoFindings;

impl Reviewer for NoFindings {
    async fn review(&self, _: Reviewed, _: Reads) -> Result<Vec<Finding>, ReviewError> {
        Ok(Vec::new())
    }
}

/// Counts the reviews of policies that run at a time. The review of `slow` does not end, and leaves work
/// behind that does not end either; that of `broken` panics.
#[derive(Default)]
struct Counting {
    running: AtomicUsize,
    most: AtomicUsize,
    left: Mutex<Vec<ReviewPermit>>,
}

impl PolicyReviewer for Counting {
    fn review(&self, object: Value, permit: ReviewPermit) -> BoxFuture<'_, Result<(), PolicyFinding>> {
        async move {
            self.most.fetch_max(self.running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            match object["metadata"]["name"].as_str() {
                Some("slow") => {
                    self.left.lock().unwrap().push(permit);
                    std::future::pending::<()>().await;
                }
                Some("broken") => panic!("a bug, as this test wants"),
                _ => tokio::task::yield_now().await,
            }
            self.running.fetch_sub(1, Ordering::Relaxed);
            Ok(())
        }
        .boxed()
    }
}

fn counting() -> (Arc<Counting>, Router) {
    let counting = Arc::<Counting>::default();
    let policies: Arc<dyn PolicyReviewer> = Arc::<Counting>::clone(&counting);
    let (settings, metrics) = (AdmissionSettings::default(), AdmissionMetrics::default());
    (counting, admission(Arc::new(NoFindings), settings, metrics, Some(policies)))
}

/// The response to the creation of a policy, for an API server that waits for ten seconds.
async fn applied(router: &Router, name: &str) -> Value {
    let review = create(&json!({"kind": "MatchPolicy", "metadata": {"name": name}}));
    let request = Request::post(format!("{POLICY_PATH}?timeout=10s"));
    let request = request.body(Body::from(review.to_string())).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let mut answer: Value = serde_json::from_slice(&bytes).unwrap();
    answer["response"].take()
}

fn assert_allowed(response: &Value) {
    assert_eq!(*response, json!({"uid": response["uid"], "allowed": true}));
}

fn assert_not_checked(response: &Value) {
    assert_eq!(response["allowed"], json!(true));
    assert_eq!(warnings(response), [NOT_CHECKED]);
}

#[tokio::test(start_paused = true)]
async fn hundreds_of_policies_are_reviewed_two_at_a_time() {
    let (counting, router) = counting();
    for response in join_all((0..200).map(|_| applied(&router, "quick"))).await {
        assert_allowed(&response);
    }
    assert_eq!(counting.most.load(Ordering::Relaxed), MAX);
}

#[tokio::test(start_paused = true)]
async fn what_a_review_of_a_policy_leaves_running_counts_until_it_ends() {
    let (counting, router) = counting();
    for response in join_all((0..=MAX).map(|_| applied(&router, "slow"))).await {
        assert_not_checked(&response);
    }
    assert_eq!(counting.left.lock().unwrap().len(), MAX);
    assert_not_checked(&applied(&router, "quick").await);
    counting.left.lock().unwrap().clear();
    assert_allowed(&applied(&router, "quick").await);
}

#[tokio::test(start_paused = true)]
async fn a_review_of_a_policy_that_panics_lets_it_pass_with_a_warning() {
    let (_, router) = counting();
    for _ in 0..=MAX {
        let response = applied(&router, "broken").await;
        assert_eq!(response["allowed"], json!(true));
        assert_eq!(warnings(&response), ["Bindery has not checked this request: it failed"]);
    }
    assert_allowed(&applied(&router, "quick").await);
}
