//! Bodies that are larger than there are any, over the wire.

use std::sync::Arc;

use bindery_controller::{ReviewError, Reviewed, Sight};
use bindery_core::Finding;
use bindery_webhook::server::Limits;
use bindery_webhook::{AdmissionMetrics, AdmissionSettings, Reviewer, admission};
use hyper::StatusCode;

use super::world::{Call, Failure, PATIENCE, Site};

/// A review that is good but for what it is about, which nobody asks for.
const GOOD: &str =
    r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1"}}"#;

/// Where reviews go of an API server that waits as long as one can.
const PATIENTLY: &str = "/validate?timeout=30s";

/// Nothing is ever wrong.
struct Content;

impl Reviewer for Content {
    async fn review(&self, _: Reviewed, _: Sight) -> Result<Vec<Finding>, ReviewError> {
        Ok(Vec::new())
    }
}

/// The door, which leaves a slow machine its time.
async fn site() -> Site {
    let settings = AdmissionSettings { body_within: PATIENCE, ..AdmissionSettings::default() };
    let door = admission(Arc::new(Content), settings, AdmissionMetrics::default());
    Site::answering(door, Limits::default(), None).await
}

/// Asks what a good answer comes to, on this connection.
async fn check(call: &mut Call) -> Result<(), Failure> {
    let answer = call.ask(PATIENTLY, GOOD).await?;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    assert!(answer.body.contains(r#""allowed":true"#), "{}", answer.body);
    Ok(())
}

#[tokio::test]
async fn four_mebibytes_are_refused_in_words_and_the_next_review_is_answered() {
    let site = site().await;
    let large = " ".repeat(4 << 20);
    for is_http2 in [false, true] {
        for is_in_pieces in [false, true] {
            let client = if is_http2 { site.client().http2() } else { site.client() };
            let mut call = client.call(site.address).await.unwrap();
            let answer = if is_in_pieces {
                call.ask_in_pieces(PATIENTLY, &large).await.unwrap()
            } else {
                call.ask(PATIENTLY, &large).await.unwrap()
            };
            assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
            assert_eq!(answer.body, "the body is larger than 3145728 bytes\n");
            // On the same connection, and on another.
            check(&mut call).await.unwrap();
            check(&mut client.call(site.address).await.unwrap()).await.unwrap();
        }
    }
}

/// Of what goes on for longer no more is read. Its sender is answered before he has sent all, or cut off.
#[tokio::test]
async fn what_is_far_too_large_is_not_read_to_its_end() {
    let site = site().await;
    let endless = " ".repeat(64 << 20);
    for client in [site.client(), site.client().http2()] {
        let mut call = client.call(site.address).await.unwrap();
        for answer in [call.ask(PATIENTLY, &endless).await, call.ask_in_pieces(PATIENTLY, &endless).await] {
            // After the first the connection may be closed.
            let status = answer.map(|answer| answer.status);
            assert!(status.is_err() || status.is_ok_and(|status| status == StatusCode::PAYLOAD_TOO_LARGE));
        }
        check(&mut client.call(site.address).await.unwrap()).await.unwrap();
    }
}
