//! Many requests of an API server at once, and many idle connections to the server of health and metrics.

use std::fs;

use bindery_cluster::poll;
use bindery_kit::allow_files;
use futures::future::try_join_all;
use serde_json::json;
use tokio::net::TcpStream;

use super::webhooks::{WebhookReplica, Webhooks};

/// Other open files of this process.
const OTHERS: usize = 500;
/// Connections to the server of health and metrics, and most that may be open at the same time.
const WITHOUT_TLS: usize = 2_000;
const WITHOUT_TLS_MAX: usize = 64;
/// Other open files of a replica.
const FILES: usize = 64;

fn files(webhook: &WebhookReplica) -> usize {
    fs::read_dir(format!("/proc/{}/fd", webhook.replica.id())).unwrap().count()
}

/// The API server uses HTTP/2, and has more requests in flight than a connection takes.
#[tokio::test]
async fn a_hundred_claims_at_once_are_all_reviewed() {
    const CLAIMS: usize = 100;
    let (webhooks, webhook) = Webhooks::start_with_replica(&[]).await;
    let reviews = "bindery_admission_reviews_total{kind=\"claim\",outcome=\"allowed\"}";
    let before = webhook.replica.metric(reviews).await;
    // The failure policy is Fail.
    try_join_all((0..CLAIMS).map(|_| webhooks.try_claim(json!({})))).await.unwrap();
    assert_eq!(webhook.replica.metric(reviews).await, before + u64::try_from(CLAIMS).unwrap());
}

/// Both servers share the limit of open files.
#[tokio::test]
async fn idle_connections_to_the_metrics_take_no_files_from_the_webhook() {
    let (webhooks, webhook) = Webhooks::start_with_replica(&[]).await;

    allow_files(WITHOUT_TLS + OTHERS);
    let mut streams = Vec::new();
    for number in 0..WITHOUT_TLS {
        streams.push(TcpStream::connect(("127.0.0.1", webhook.replica.port)).await.unwrap());
        if number % 500 == 499 {
            webhooks.try_claim(json!({})).await.unwrap();
            assert_eq!(webhook.replica.get("/livez").await, "ok");
        }
    }
    let closed = poll(async || (files(&webhook) <= WITHOUT_TLS_MAX + FILES).then_some(()));
    assert!(closed.await.is_some(), "{} files are open", files(&webhook));
    drop(streams);
}
