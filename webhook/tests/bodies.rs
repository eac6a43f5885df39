//! The memory that costly bodies take. The test measures its process, so it runs in one of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what was measured is printed")]

#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "server/fixture.rs"]
mod fixture;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bindery_controller::{Reads, ReviewError, Reviewed};
use bindery_core::Finding;
use bindery_kit::{peak_kib, poll, resident_kib};
use bindery_webhook::server::Limits;
use bindery_webhook::{AdmissionMetrics, AdmissionSettings, BODY_MAX, Reviewer, admission};
use futures::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::client::TlsStream;

use self::fixture::{NAME, PATIENCE, TestServer};

/// Clients that send a large body at the same time.
const CALLERS: usize = 21;
/// Largest body that counts as small.
const SMALL: usize = 16 * 1024;
const IN_FLIGHT_MAX: usize = 256;
/// The costliest body that is reviewed at any size.
const REVIEWED: &str = "labels, as many as a review may have";
/// Their limit in KiB, both ends together: a quarter of a pod's memory limit in the chart.
const COST_MAX: u64 = 128 * 1024;

/// A reviewer without findings that holds each object until it gets a permit.
struct Holding {
    permits: Semaphore,
    holds: AtomicUsize,
}

impl Reviewer for Holding {
    async fn review(&self, _reviewed: Reviewed, _: Reads) -> Result<Vec<Finding>, ReviewError> {
        self.holds.fetch_add(1, Ordering::Relaxed);
        let _ = self.permits.acquire().await;
        self.holds.fetch_sub(1, Ordering::Relaxed);
        Ok(Vec::new())
    }
}

impl Holding {
    async fn until_holds(&self, reviews: usize) {
        let held = async || (self.holds.load(Ordering::Relaxed) >= reviews).then_some(());
        poll(Duration::from_millis(1), PATIENCE, held).await.expect("all are reviewed");
    }
}

/// A review of this many bytes. Its object has `before`, as many of `many` as fit, and `after`.
fn review(kind: &str, before: &str, many: impl Fn(usize) -> String, after: &str, bytes: usize) -> Vec<u8> {
    let before = format!(
        concat!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"1","#,
            r#""operation":"CREATE","kind":{{"group":"","version":"v1","kind":"{}"}},"#,
            r#""object":{{"metadata":{{"name":"x"{}"#
        ),
        kind, before
    );
    let (mut body, after) = (before, format!("{after}}}}}}}"));
    for number in 0.. {
        let next = many(number);
        if body.len() + next.len() + after.len() + 1 > bytes {
            break;
        }
        if number > 0 {
            body.push(',');
        }
        body.push_str(&next);
    }
    (body + &after).into_bytes()
}

/// Reviews of this many bytes, each with as many of one thing as fit.
fn costly(bytes: usize) -> Vec<(&'static str, Vec<u8>)> {
    let (volume, claim) = ("PersistentVolume", "PersistentVolumeClaim");
    let pair = |number: usize| format!(r#""{number:x}":"""#);
    let zero = |_| "0".to_owned();
    let long = |number: usize| format!(r#""{number:x}":"{}""#, "x".repeat(24));
    vec![
        ("what is unknown", review(volume, r#"},"spec":{"x":["#, zero, "]}", bytes)),
        ("parts of a quantity", review(volume, r#"},"spec":{"capacity":{"storage":["#, zero, "]}}", bytes)),
        ("finalizers", review(volume, r#","finalizers":["#, |_| r#""""#.to_owned(), "]}", bytes)),
        ("labels", review(volume, r#","labels":{"#, pair, "}}", bytes)),
        (REVIEWED, review(volume, r#","labels":{"#, long, "}}", bytes)),
        ("annotations", review(claim, r#","annotations":{"#, pair, "}}", bytes)),
        (
            "labels of a selector",
            review(claim, r#"},"spec":{"selector":{"matchLabels":{"#, pair, "}}}", bytes),
        ),
        (
            "expressions of a selector",
            review(claim, r#"},"spec":{"selector":{"matchExpressions":["#, |_| "{}".to_owned(), "]}}", bytes),
        ),
        (
            "requests",
            review(
                claim,
                r#"},"spec":{"resources":{"requests":{"#,
                |number| format!(r#""{number:x}":0"#),
                "}}}",
                bytes,
            ),
        ),
    ]
}

/// Sends all of a body but its last byte.
async fn begin(server: &TestServer, body: &[u8]) -> TlsStream<TcpStream> {
    let mut stream = server.client().handshake(server.address).await.unwrap();
    let head = format!(
        "POST /validate?timeout=30s HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    send(&mut stream, &body[..body.len() - 1]).await;
    stream
}

/// Sends bytes. The server may have given the body up and closed the connection. Without the flush, TLS
/// would keep the last bytes, and the server would wait for them.
async fn send(stream: &mut TlsStream<TcpStream>, bytes: &[u8]) {
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
}

/// Sends the last byte and reads the status of the answer; 0 if none comes.
async fn finish(mut stream: TlsStream<TcpStream>, body: &[u8]) -> u16 {
    let mut answer = Vec::new();
    send(&mut stream, &body[body.len() - 1..]).await;
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// Has this many clients send the body at once; answers how many were reviewed.
async fn all_at_once(server: &TestServer, body: &[u8], callers: usize) -> usize {
    let streams = join_all((0..callers).map(|_| begin(server, body))).await;
    let statuses = join_all(streams.into_iter().map(|stream| finish(stream, body))).await;
    // Reviewed, given up for another, late, or cut off.
    assert!(statuses.iter().all(|status| [200, 503, 408, 0].contains(status)), "{statuses:?}");
    statuses.into_iter().filter(|status| *status == 200).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn costly_bodies_cost_little_memory() {
    let holding =
        Arc::new(Holding { permits: Semaphore::new(Semaphore::MAX_PERMITS), holds: AtomicUsize::new(0) });
    let settings = AdmissionSettings {
        in_flight_max: IN_FLIGHT_MAX,
        body_within: PATIENCE,
        ..AdmissionSettings::default()
    };
    let router = admission(Arc::clone(&holding), settings, AdmissionMetrics::default(), None);
    let server = TestServer::with_router(router, Limits::default(), None).await;
    let (large, small) = (costly(BODY_MAX), costly(SMALL));
    let before = resident_kib("self");
    let cost = || peak_kib("self").saturating_sub(before);

    for (what, body) in &large {
        let mut reviewed = 0;
        // On a busy machine, all of them may be late.
        while reviewed == 0 {
            reviewed = all_at_once(&server, body, CALLERS).await;
        }
        let good = all_at_once(&server, &small[0].1, 1).await;
        println!("{CALLERS} of {what}, each of {BODY_MAX} bytes: {} KiB at most so far", cost());
        assert_eq!(good, 1, "the next good review");
        assert!(cost() < COST_MAX, "{what}: {} KiB", cost());
    }

    // As many reviews as there may be, all but one of them small, while large ones arrive.
    let permits = holding.permits.forget_permits(Semaphore::MAX_PERMITS);
    let labels = |of: &[(&str, Vec<u8>)]| of.iter().find(|(what, _)| *what == REVIEWED).unwrap().1.clone();
    let (large, small) = (labels(&large), labels(&small));
    let mut small_ones = Vec::new();
    for number in 1..IN_FLIGHT_MAX {
        let mut stream = begin(&server, &small).await;
        send(&mut stream, &small[small.len() - 1..]).await;
        small_ones.push(stream);
        holding.until_holds(number).await;
    }
    let large_ones = async { while all_at_once(&server, &large, CALLERS).await == 0 {} };
    let release = async {
        holding.until_holds(IN_FLIGHT_MAX).await;
        holding.permits.add_permits(permits);
    };
    let all = async { tokio::join!(large_ones, release) };
    tokio::time::timeout(PATIENCE, all).await.expect("the large ones are answered");
    println!("{IN_FLIGHT_MAX} held reviews: {} KiB at most", cost());
    assert!(cost() < COST_MAX, "{} KiB", cost());
    for mut stream in small_ones {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&answer));
    }
}
