//! Ten thousand connections that send nothing, to the door and to the server of health and metrics.

use std::fs;
use std::path::PathBuf;
use std::slice;
use std::time::Duration;

use bindery_kit::{allow_files, resident_kib};
use futures::future::join_all;
use tokio::net::TcpStream;

use super::site::{Doorkeeper, Site};
use super::world::PATIENCE;

const SILENT: usize = 10_000;
/// Files that this process may have beside them.
const OTHERS: usize = 500;
/// What they may cost, in KiB: 64 MiB, for the thousand that may be there at the same time.
const COST_MAX: u64 = 64 * 1024;
/// How many come to the server of health and metrics, and how many may be there at the same time.
const WITHOUT_TLS: usize = 2_000;
const WITHOUT_TLS_MAX: usize = 64;
/// Files that a replica may open beside these.
const FILES: usize = 64;

/// What the system tells of a replica's process.
fn told(doorkeeper: &Doorkeeper, what: &str) -> PathBuf {
    format!("/proc/{}/{what}", doorkeeper.replica.pid().as_raw_nonzero()).into()
}

/// Memory of a replica's process in KiB.
fn memory(doorkeeper: &Doorkeeper) -> u64 {
    resident_kib(doorkeeper.replica.pid().as_raw_nonzero())
}

/// How many files it has open.
fn files(doorkeeper: &Doorkeeper) -> usize {
    fs::read_dir(told(doorkeeper, "fd")).unwrap().count()
}

/// A site with one replica that the API server asks.
async fn asked_site() -> (Site, Doorkeeper) {
    let site = Site::start().await;
    let mut doorkeeper = site.open("first", &["--certificate-name=127.0.0.1"]);
    site.apply(&[("first", doorkeeper.port)]).await.unwrap();
    site.until_trusted().await;
    doorkeeper.replica.until_metrics("bindery_lists_complete 1\n").await;
    site.until_asked(slice::from_ref(&doorkeeper)).await;
    (site, doorkeeper)
}

/// Has the API server try a claim, and again where it has paused between head and body of its request: a body
/// that is late is not waited for.
async fn pass(site: &Site) {
    let passed = async {
        loop {
            match site.try_claim().await {
                Err(error) if error.to_string().contains("the status code 408") => {
                    println!("tried again: {error}")
                }
                tried => return tried.unwrap(),
            }
        }
    };
    tokio::time::timeout(PATIENCE, passed).await.expect("the body comes in time");
}

#[tokio::test]
async fn silent_connections_cost_little_and_the_next_review_is_answered() {
    let (site, doorkeeper) = asked_site().await;
    let before = memory(&doorkeeper);

    allow_files(SILENT + OTHERS);
    let mut streams = Vec::new();
    let mut most = 0;
    for number in 0..SILENT {
        streams.push(TcpStream::connect(("127.0.0.1", doorkeeper.port)).await.unwrap());
        if number % 1_000 == 999 {
            pass(&site).await;
            most = most.max(memory(&doorkeeper));
        }
    }
    pass(&site).await;
    let cost = most.max(memory(&doorkeeper)).saturating_sub(before);
    println!("{SILENT} silent connections cost {cost} KiB");
    assert!(cost < COST_MAX, "{cost} KiB");
    assert!(doorkeeper.replica.metric("bindery_webhook_connections").await <= 1_000);

    // All of them are closed, kept open from this side or not; the API server's connection is not.
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let closed = async {
        while doorkeeper.replica.metric("bindery_webhook_connections").await > 1 {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.expect("silent connections are closed");
    drop(streams);
    pass(&site).await;
}

/// By a URL on loopback an API server asks by HTTP/2, and has more under way than a connection takes.
#[tokio::test]
async fn a_hundred_claims_at_once_are_all_reviewed() {
    const CLAIMS: usize = 100;
    let (site, doorkeeper) = asked_site().await;
    let reviews = "bindery_admission_reviews_total{kind=\"claim\",outcome=\"allowed\"}";
    let before = doorkeeper.replica.metric(reviews).await;
    // Nobody passes unseen: a failure to ask fails the request.
    join_all((0..CLAIMS).map(|_| pass(&site))).await;
    assert_eq!(doorkeeper.replica.metric(reviews).await, before + u64::try_from(CLAIMS).unwrap());
}

/// Both are doors to one process: what it may open is no less for the one when somebody knocks at the other.
#[tokio::test]
async fn silent_connections_to_the_metrics_take_nothing_from_the_door() {
    let (site, doorkeeper) = asked_site().await;

    allow_files(WITHOUT_TLS + OTHERS);
    let mut streams = Vec::new();
    for number in 0..WITHOUT_TLS {
        streams.push(TcpStream::connect(("127.0.0.1", doorkeeper.replica.listens)).await.unwrap());
        if number % 500 == 499 {
            pass(&site).await;
            assert_eq!(doorkeeper.replica.get("/livez").await, "ok");
        }
    }
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let closed = async {
        while files(&doorkeeper) > WITHOUT_TLS_MAX + FILES {
            ticks.tick().await;
        }
    };
    let closed = tokio::time::timeout(PATIENCE, closed).await;
    assert!(closed.is_ok(), "{} files are open", files(&doorkeeper));
    drop(streams);
}
