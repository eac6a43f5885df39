//! Shutdown.

use std::time::Duration;

use bindery_kit::poll;
use bindery_webhook::server::Limits;
use hyper::StatusCode;
use tokio::net::TcpStream;

use super::fixture::{PATIENCE, TICK, TestServer, check};

#[tokio::test]
async fn requests_are_answered_until_clients_have_moved() {
    let hour = Duration::from_secs(3600);
    let limits = Limits { drain: hour, request_max: 2 * hour, idle_max: 2 * hour, ..Limits::default() };
    let mut server = TestServer::start_with(limits, None).await;
    let mut waiting = Vec::new();
    for client in [server.client(), server.client().http2()] {
        let mut connection = client.connect(server.address).await.unwrap();
        waiting.push(tokio::spawn(async move { connection.ask("/held", "review").await.unwrap() }));
    }
    server.until_arrived(2).await;
    let mut idle = server.client().connect(server.address).await.unwrap();
    check(&idle.ask("/validate", "review").await.unwrap());
    server.stop();

    // Requests on old and new connections are answered, and the answer asks the client to close.
    let told = async || {
        check(&server.client().http2().ask(server.address).await.unwrap());
        let answer = server.client().ask(server.address).await.unwrap();
        check(&answer);
        answer.closes.then_some(())
    };
    poll(TICK, PATIENCE, told).await.expect("clients are told");
    let answer = idle.ask("/validate", "review").await.unwrap();
    check(&answer);
    assert!(answer.closes);
    // HTTP/2 asks a client after its first request, not before.
    check(&server.client().http2().ask(server.address).await.unwrap());

    // Then no connection is accepted, and requests in flight are answered.
    tokio::time::pause();
    tokio::time::advance(hour).await;
    tokio::time::resume();
    let refused = async || TcpStream::connect(server.address).await.err();
    poll(TICK, PATIENCE, refused).await.expect("connections are refused");
    assert!(waiting.iter().all(|answered| !answered.is_finished()));
    server.held.add_permits(2);
    for answered in waiting {
        check(&answered.await.unwrap());
    }
    server.ended().await;
}

#[tokio::test]
async fn a_request_without_an_answer_does_not_delay_the_end() {
    let limits =
        Limits { drain: Duration::ZERO, request_max: Duration::from_millis(500), ..Limits::default() };
    let mut server = TestServer::start_with(limits, None).await;
    let mut connection = server.client().connect(server.address).await.unwrap();
    let asked = tokio::spawn(async move { connection.ask("/held", "review").await });
    server.until_arrived(1).await;
    server.stop();
    // A timeout, or a closed connection.
    let answer = asked.await.unwrap();
    assert!(answer.is_err() || answer.unwrap().status == StatusCode::REQUEST_TIMEOUT);
    server.ended().await;
}

#[tokio::test]
async fn silent_connections_do_not_delay_the_end() {
    let hour = Duration::from_secs(3600);
    let limits = Limits {
        drain: Duration::ZERO,
        handshake_max: hour,
        request_max: hour,
        idle_max: hour,
        ..Limits::default()
    };
    let mut server = TestServer::start_with(limits, None).await;
    let _no_handshake = server.connect().await;
    let _no_request = server.client().handshake(server.address).await.unwrap();
    let _no_request_of_http2 = server.client().http2().connect(server.address).await.unwrap();
    let mut asked = server.client().connect(server.address).await.unwrap();
    check(&asked.ask("/validate", "review").await.unwrap());
    server.until("all are connected", |stats| stats.connections() == 4).await;
    server.stop();
    server.ended().await;
}
