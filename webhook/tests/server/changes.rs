//! Certificates that change while requests arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bindery_kit::{Authority, poll};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::fixture::{Client, PATIENCE, TICK, TestServer, check, identity};

const CHANGES: usize = 20;
/// How many requests of each client are answered between two changes.
const BETWEEN: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_change_without_a_failed_request() {
    let server = TestServer::start().await;
    let next = Authority::new();
    // As in the webhook configuration during a renewal.
    let both = format!("{}{}", server.authority.pem(), next.pem());
    let (stop, mut asking) = (CancellationToken::new(), JoinSet::new());
    let counts: [Arc<AtomicUsize>; 4] = Default::default();
    for (kind, count) in counts.iter().enumerate() {
        let (is_http2, keeps) = (kind & 1 == 1, kind & 2 == 2);
        let client = if is_http2 { Client::new(&both).http2() } else { Client::new(&both) };
        let (address, stop, count) = (server.address, stop.clone(), Arc::clone(count));
        asking.spawn(async move {
            let mut connection = client.connect(address).await.unwrap();
            while !stop.is_cancelled() {
                if !keeps {
                    connection = client.connect(address).await.unwrap();
                }
                check(&connection.ask("/validate", "review").await.unwrap());
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for change in 0..CHANGES {
        let before = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let answered = async || {
            let mut counts = counts.iter().zip(before);
            counts.all(|(count, before)| count.load(Ordering::Relaxed) >= before + BETWEEN).then_some(())
        };
        poll(TICK, PATIENCE, answered).await.expect("all clients are answered");
        let authority = if change % 2 == 0 { &next } else { &server.authority };
        server.credentials.show(&identity(authority));
    }
    stop.cancel();
    while let Some(asked) = asking.join_next().await {
        asked.unwrap();
    }
    assert_eq!(server.stats.handshake_errors.get(), 0);
    // The last certificate is the first authority's.
    check(&server.client().ask(server.address).await.unwrap());
    assert!(Client::new(&next.pem()).ask(server.address).await.is_err());
}
