//! The memory that unfinished requests cost. The test measures its process, so it runs in one of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what was measured is printed")]

#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "server/fixture.rs"]
mod fixture;
#[path = "server/heads.rs"]
mod heads;

use std::sync::Arc;
use std::time::Duration;

use bindery_kit::{allow_files, resident_kib};
use bindery_webhook::server::Limits;
use bindery_webhook::{AdmissionMetrics, AdmissionSettings, admission};

use self::fixture::{NoFindings, TestServer};
use self::heads::{Heads, head_of_http1};

/// The server's own limit.
const CONNECTIONS: usize = 1_000;
/// Files of this process besides both ends of the connections.
const OTHERS: usize = 100;
/// How often each connection sends as much as it may.
const ROUNDS: usize = 3;
/// Their limit in KiB, both ends together: a quarter of a pod's memory limit in the chart.
const COST_MAX: u64 = 128 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_without_bodies_cost_little_memory() {
    allow_files(2 * CONNECTIONS + OTHERS);
    let router =
        admission(Arc::new(NoFindings), AdmissionSettings::default(), AdmissionMetrics::default(), None);
    // A slow machine must not close the first connections.
    let limits = Limits { idle_max: Duration::from_secs(3600), ..Limits::default() };
    let server = TestServer::with_router(router, limits, None).await;
    let before = resident_kib("self");
    let (mut clients, mut heads, mut cost) = (Vec::new(), 0, 0);
    for round in 0..ROUNDS {
        for number in 0..CONNECTIONS {
            if round == 0 {
                clients.push(Heads::connect(server.client(), server.address).await);
            }
            let client = &mut clients[number];
            client.send(client.streams_max, client.header_bytes_max).await;
            heads += client.streams_max;
            cost = cost.max(resident_kib("self").saturating_sub(before));
            assert!(cost < COST_MAX, "{heads} heads on {} connections cost {cost} KiB", clients.len());
        }
    }
    drop(clients);
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(head_of_http1(server.client(), server.address).await);
        cost = cost.max(resident_kib("self").saturating_sub(before));
        assert!(cost < COST_MAX, "{} heads of HTTP/1.1 cost {cost} KiB", clients.len());
    }
    assert!(server.stats.connections() <= CONNECTIONS, "{:?}", server.stats);
    println!("{heads} heads on {CONNECTIONS} connections cost {cost} KiB");
}
