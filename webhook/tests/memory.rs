//! What requests cost that nobody means to finish. A process of its own: it is its memory that is measured.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what was measured is printed")]

#[path = "server/heads.rs"]
mod heads;
#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "server/world.rs"]
mod world;

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{ReviewError, Reviewed, Sight};
use bindery_core::Finding;
use bindery_kit::{allow_files, resident_kib};
use bindery_webhook::server::Limits;
use bindery_webhook::{AdmissionMetrics, AdmissionSettings, Reviewer, admission};

use self::heads::{Heads, head_of_http1};
use self::world::Site;

/// As many as the door takes.
const CONNECTIONS: usize = 1_000;
/// Files that this process may have beside both ends of them.
const OTHERS: usize = 100;
/// How often each of them sends as much as it may.
const ROUNDS: usize = 3;
/// What all of them may cost in KiB, both ends together: a quarter of what the chart lets a pod have.
const COST_MAX: u64 = 128 * 1024;

/// Nothing is ever wrong.
struct Content;

impl Reviewer for Content {
    async fn review(&self, _: Reviewed, _: Sight) -> Result<Vec<Finding>, ReviewError> {
        Ok(Vec::new())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_by_the_hundred_thousand_cost_little() {
    allow_files(2 * CONNECTIONS + OTHERS);
    let door = admission(Arc::new(Content), AdmissionSettings::default(), AdmissionMetrics::default());
    // A machine that is slow at all of this is no reason to close the first ones.
    let limits = Limits { idle_max: Duration::from_secs(3600), ..Limits::default() };
    let site = Site::answering(door, limits, None).await;
    let before = resident_kib("self");
    let (mut clients, mut heads, mut cost) = (Vec::new(), 0, 0);
    for round in 0..ROUNDS {
        for number in 0..CONNECTIONS {
            if round == 0 {
                clients.push(Heads::connect(site.client(), site.address).await);
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
        clients.push(head_of_http1(site.client(), site.address).await);
        cost = cost.max(resident_kib("self").saturating_sub(before));
        assert!(cost < COST_MAX, "{} heads of HTTP/1.1 cost {cost} KiB", clients.len());
    }
    println!("{heads} heads on {CONNECTIONS} connections cost {cost} KiB");
}
