//! Bodies that are too large.

use std::sync::Arc;

use bindery_webhook::server::Limits;
use bindery_webhook::{AdmissionMetrics, AdmissionSettings, admission};
use hyper::StatusCode;

use super::fixture::{Connection, Error, NoFindings, PATIENCE, TestServer};

/// A valid review of nothing.
const REVIEW: &str =
    r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1"}}"#;

/// The path for an API server that waits as long as one can.
const PATH: &str = "/validate?timeout=30s";

/// A server of admission that leaves a slow machine time.
async fn admission_server() -> TestServer {
    let settings = AdmissionSettings { body_within: PATIENCE, ..AdmissionSettings::default() };
    let router = admission(Arc::new(NoFindings), settings, AdmissionMetrics::default(), None);
    TestServer::with_router(router, Limits::default(), None).await
}

/// Checks that a review on this connection passes.
async fn check(connection: &mut Connection) -> Result<(), Error> {
    let answer = connection.ask(PATH, REVIEW).await?;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    assert!(answer.body.contains(r#""allowed":true"#), "{}", answer.body);
    Ok(())
}

#[tokio::test]
async fn a_body_too_large_is_refused_and_the_next_review_answered() {
    let server = admission_server().await;
    let large = " ".repeat(4 << 20);
    for is_http2 in [false, true] {
        for is_in_pieces in [false, true] {
            let client = if is_http2 { server.client().http2() } else { server.client() };
            let mut connection = client.connect(server.address).await.unwrap();
            let answer = if is_in_pieces {
                connection.ask_in_pieces(PATH, &large).await.unwrap()
            } else {
                connection.ask(PATH, &large).await.unwrap()
            };
            assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
            assert_eq!(answer.body, "the body is larger than 3145728 bytes\n");
            // On the same connection and on another.
            check(&mut connection).await.unwrap();
            check(&mut client.connect(server.address).await.unwrap()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_endless_body_is_not_read_to_its_end() {
    let server = admission_server().await;
    let endless = " ".repeat(64 << 20);
    for client in [server.client(), server.client().http2()] {
        let mut connection = client.connect(server.address).await.unwrap();
        for answer in [connection.ask(PATH, &endless).await, connection.ask_in_pieces(PATH, &endless).await] {
            // The connection may be closed after the first.
            let status = answer.map(|answer| answer.status);
            assert!(status.is_err() || status.is_ok_and(|status| status == StatusCode::PAYLOAD_TOO_LARGE));
        }
        check(&mut client.connect(server.address).await.unwrap()).await.unwrap();
    }
}
