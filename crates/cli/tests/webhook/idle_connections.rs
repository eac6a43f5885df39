//! Ten thousand idle connections to the webhook, and many to the server of health and metrics.

use std::fs;

use bindery_cluster::{in_time, poll};
use bindery_kit::{allow_files, resident_kib};
use futures::future::join_all;
use serde_json::json;
use tokio::net::TcpStream;

use super::scene::{Scene, WebhookReplica};

const IDLE: usize = 10_000;
/// Other open files of this process.
const OTHERS: usize = 500;
/// Most memory in KiB for the thousand that may be open at the same time.
const COST_MAX: u64 = 64 * 1024;
/// Connections to the server of health and metrics, and most that may be open at the same time.
const WITHOUT_TLS: usize = 2_000;
const WITHOUT_TLS_MAX: usize = 64;
/// Other open files of a replica.
const FILES: usize = 64;

/// Memory of a replica's process in KiB.
fn memory(webhook: &WebhookReplica) -> u64 {
    resident_kib(webhook.replica.pid().as_raw_nonzero())
}

/// The number of open files of a replica's process.
fn files(webhook: &WebhookReplica) -> usize {
    fs::read_dir(format!("/proc/{}/fd", webhook.replica.pid().as_raw_nonzero())).unwrap().count()
}

/// Tries a claim, and again if the API server has paused between head and body of its request: the webhook
/// does not wait for a late body.
async fn pass(scene: &Scene) {
    let passed = async {
        loop {
            match scene.try_claim(json!({})).await {
                Err(error) if error.to_string().contains("the status code 408") => {
                    println!("retried: {error}")
                }
                tried => return tried.unwrap(),
            }
        }
    };
    in_time("the body comes in time", passed).await;
}

#[tokio::test]
async fn idle_connections_cost_little_memory_and_reviews_go_on() {
    let (scene, mut webhook) = Scene::start_with_replica().await;
    let before = memory(&webhook);

    allow_files(IDLE + OTHERS);
    let mut streams = Vec::new();
    let mut most = 0;
    for number in 0..IDLE {
        streams.push(TcpStream::connect(("127.0.0.1", webhook.port)).await.unwrap());
        if number % 1_000 == 999 {
            pass(&scene).await;
            most = most.max(memory(&webhook));
        }
    }
    pass(&scene).await;
    let cost = most.max(memory(&webhook)).saturating_sub(before);
    println!("{IDLE} idle connections cost {cost} KiB");
    assert!(cost < COST_MAX, "{cost} KiB");
    assert!(webhook.replica.metric("bindery_webhook_connections").await <= 1_000);

    // All are closed by the webhook; the API server's connection is not.
    webhook.replica.until_metric("bindery_webhook_connections", |open| open <= 1).await;
    drop(streams);
    pass(&scene).await;
}

/// The API server uses HTTP/2, and has more requests in flight than a connection takes.
#[tokio::test]
async fn a_hundred_claims_at_once_are_all_reviewed() {
    const CLAIMS: usize = 100;
    let (scene, webhook) = Scene::start_with_replica().await;
    let reviews = "bindery_admission_reviews_total{kind=\"claim\",outcome=\"allowed\"}";
    let before = webhook.replica.metric(reviews).await;
    // The failure policy is Fail.
    join_all((0..CLAIMS).map(|_| pass(&scene))).await;
    assert_eq!(webhook.replica.metric(reviews).await, before + u64::try_from(CLAIMS).unwrap());
}

/// Both servers share the limit of open files.
#[tokio::test]
async fn idle_connections_to_the_metrics_take_no_files_from_the_webhook() {
    let (scene, webhook) = Scene::start_with_replica().await;

    allow_files(WITHOUT_TLS + OTHERS);
    let mut streams = Vec::new();
    for number in 0..WITHOUT_TLS {
        streams.push(TcpStream::connect(("127.0.0.1", webhook.replica.port)).await.unwrap());
        if number % 500 == 499 {
            pass(&scene).await;
            assert_eq!(webhook.replica.get("/livez").await, "ok");
        }
    }
    let closed = poll(async || (files(&webhook) <= WITHOUT_TLS_MAX + FILES).then_some(()));
    assert!(closed.await.is_some(), "{} files are open", files(&webhook));
    drop(streams);
}
