//! The connection limiter.

use std::any::Any;
use std::time::Duration;

use bindery_kit::allow_files;
use bindery_webhook::server::Limits;
use tokio::io::AsyncReadExt as _;

use super::fixture::{PATIENCE, TestServer, check};
use super::heads::{Heads, head_of_http1};

const SILENT: usize = 10_000;
const CONNECTIONS_MAX: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_silent_connections_are_closed_first() {
    // This process has both ends of each open connection.
    allow_files(SILENT + 2 * CONNECTIONS_MAX);
    let limits = Limits {
        connections_max: CONNECTIONS_MAX,
        // Longer than a busy machine may pause.
        handshake_max: Duration::from_secs(8),
        ..Limits::default()
    };
    let server = TestServer::start_with(limits, None).await;
    // A connection in use.
    let mut connection = server.client().connect(server.address).await.unwrap();
    let mut streams = Vec::new();
    for number in 0..SILENT {
        streams.push(server.connect().await);
        assert!(server.stats.connections() <= CONNECTIONS_MAX);
        if number % 500 == 0 {
            check(&connection.ask("/validate", "review").await.unwrap());
            check(&server.client().ask(server.address).await.unwrap());
        }
    }
    assert!(server.stats.shed.get() > 0);
    // Each of them is closed, and the one in use stays.
    for mut stream in streams {
        let closed = tokio::time::timeout(PATIENCE, stream.read(&mut [0])).await;
        assert!(matches!(closed.expect("it is closed"), Ok(0) | Err(_)));
    }
    check(&connection.ask("/validate", "review").await.unwrap());
    server.until("one is left", |stats| stats.connections() == 1).await;
}

/// So are connections with a handshake only.
#[tokio::test]
async fn heads_without_bodies_are_closed_before_one_in_use() {
    const HEADS: usize = 40;
    let limits = Limits { connections_max: 10, ..Limits::default() };
    for kind in ["handshake", "HTTP/1.1", "HTTP/2"] {
        let server = TestServer::start_with(limits, None).await;
        let mut connection = server.client().connect(server.address).await.unwrap();
        check(&connection.ask("/validate", "review").await.unwrap());
        let mut kept: Vec<Box<dyn Any>> = Vec::new();
        for _ in 0..HEADS {
            kept.push(match kind {
                "handshake" => Box::new(server.client().handshake(server.address).await.unwrap()),
                "HTTP/1.1" => Box::new(head_of_http1(server.client(), server.address).await),
                _ => {
                    let mut heads = Heads::connect(server.client(), server.address).await;
                    heads.send(heads.streams_max, heads.header_bytes_max).await;
                    Box::new(heads)
                }
            });
            // The connection in use, and a new one.
            check(&connection.ask("/validate", "review").await.unwrap());
            check(&server.client().ask(server.address).await.unwrap());
        }
        // All but the last were closed, each for a new one.
        let shed = server.stats.shed.get();
        assert!(shed >= u64::try_from(HEADS - limits.connections_max).unwrap(), "{kind}: {shed}");
        assert!(server.stats.connections() <= limits.connections_max, "{kind}");
    }
}

#[tokio::test]
async fn a_connection_with_a_request_in_flight_is_never_closed() {
    let limits = Limits { connections_max: 2, ..Limits::default() };
    let server = TestServer::start_with(limits, None).await;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let mut connection = server.client().connect(server.address).await.unwrap();
        waiting.push(tokio::spawn(async move { connection.ask("/held", "review").await.unwrap() }));
    }
    server.until_arrived(2).await;
    assert!(server.client().ask(server.address).await.is_err());
    assert_eq!((server.stats.connections(), server.stats.shed.get()), (2, 1));
    server.held.add_permits(2);
    for answered in waiting {
        check(&answered.await.unwrap());
    }
    check(&server.client().ask(server.address).await.unwrap());
}
