//! Ten thousand connections that send nothing.

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::net::TcpStream;

use super::site::{Doorkeeper, Site};

const SILENT: usize = 10_000;
/// What they may cost, in KiB: 64 MiB, for the thousand that may be there at the same time.
const COST_MAX: u64 = 64 * 1024;

/// Memory of a replica's process in KiB.
fn memory(doorkeeper: &Doorkeeper) -> u64 {
    let pid = doorkeeper.replica.pid().as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn silent_connections_cost_little_and_the_next_review_is_answered() {
    let site = Site::start().await;
    let mut doorkeeper = site.open("first", &["--certificate-name=127.0.0.1"]);
    site.apply(&[("first", doorkeeper.port)]).await.unwrap();
    site.until_trusted().await;
    doorkeeper.replica.until_metrics("bindery_lists_complete 1\n").await;
    site.until_asked().await;
    let before = memory(&doorkeeper);

    let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
    let silent = SILENT.min(files.map_or(SILENT, |files| files.saturating_sub(500)));
    let mut streams = Vec::new();
    let mut most = 0;
    for number in 0..silent {
        streams.push(TcpStream::connect(("127.0.0.1", doorkeeper.port)).await.unwrap());
        if number % 1_000 == 999 {
            site.try_claim().await.unwrap();
            most = most.max(memory(&doorkeeper));
        }
    }
    site.try_claim().await.unwrap();
    let cost = most.max(memory(&doorkeeper)).saturating_sub(before);
    println!("{silent} silent connections cost {cost} KiB");
    assert!(cost < COST_MAX, "{cost} KiB");
    assert!(doorkeeper.replica.metric("bindery_webhook_connections").await <= 1_000);

    // All of them are closed, kept open from this side or not; the API server's connection is not.
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let closed = async {
        while doorkeeper.replica.metric("bindery_webhook_connections").await > 1 {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(super::world::PATIENCE, closed).await.expect("silent connections are closed");
    drop(streams);
    site.try_claim().await.unwrap();
}
