//! The end of a server.

use std::time::Duration;

use bindery_webhook::server::Limits;
use hyper::StatusCode;
use tokio::net::TcpStream;

use super::world::{PATIENCE, Site, check};

#[tokio::test]
async fn requests_are_answered_until_clients_have_gone_elsewhere_and_those_under_way_are_finished() {
    let hour = Duration::from_secs(3600);
    let limits = Limits { drain: hour, request_max: 2 * hour, idle_max: 2 * hour, ..Limits::default() };
    let mut site = Site::start_with(limits, None).await;
    let mut waiting = Vec::new();
    for client in [site.client(), site.client().http2()] {
        let mut call = client.call(site.address).await.unwrap();
        waiting.push(tokio::spawn(async move { call.ask("/held", "review").await.unwrap() }));
    }
    site.until_came(2).await;
    let mut idle = site.client().call(site.address).await.unwrap();
    check(&idle.ask("/validate", "review").await.unwrap());
    site.stop();

    // The old connection and new ones are answered, and told to go.
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let told = async {
        loop {
            ticks.tick().await;
            check(&site.client().http2().ask(site.address).await.unwrap());
            let answer = site.client().ask(site.address).await.unwrap();
            check(&answer);
            if answer.closes {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("clients are told");
    let answer = idle.ask("/validate", "review").await.unwrap();
    check(&answer);
    assert!(answer.closes);
    // One of HTTP/2 is told after its first request, not before.
    check(&site.client().http2().ask(site.address).await.unwrap());

    // Then nobody gets in any more, but who waits for an answer gets it.
    tokio::time::pause();
    tokio::time::advance(hour).await;
    tokio::time::resume();
    let refused = async {
        while TcpStream::connect(site.address).await.is_ok() {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("nobody is let in any more");
    assert!(waiting.iter().all(|answered| !answered.is_finished()));
    site.held.add_permits(2);
    for answered in waiting {
        check(&answered.await.unwrap());
    }
    site.ended().await;
}

#[tokio::test]
async fn a_request_that_is_never_answered_does_not_keep_the_server() {
    let limits =
        Limits { drain: Duration::ZERO, request_max: Duration::from_millis(500), ..Limits::default() };
    let mut site = Site::start_with(limits, None).await;
    let mut call = site.client().call(site.address).await.unwrap();
    let asked = tokio::spawn(async move { call.ask("/held", "review").await });
    site.until_came(1).await;
    site.stop();
    // Told that it took too long, or cut off.
    let answer = asked.await.unwrap();
    assert!(answer.is_err() || answer.unwrap().status == StatusCode::REQUEST_TIMEOUT);
    site.ended().await;
}

#[tokio::test]
async fn connections_that_say_nothing_do_not_keep_the_server() {
    let hour = Duration::from_secs(3600);
    let limits = Limits {
        drain: Duration::ZERO,
        handshake_max: hour,
        request_max: hour,
        idle_max: hour,
        ..Limits::default()
    };
    let mut site = Site::start_with(limits, None).await;
    let _no_handshake = site.connect().await;
    let _no_request = site.client().greet(site.address).await.unwrap();
    let _no_request_of_http2 = site.client().http2().call(site.address).await.unwrap();
    let mut asked = site.client().call(site.address).await.unwrap();
    check(&asked.ask("/validate", "review").await.unwrap());
    site.until("all are connected", |traffic| traffic.connections() == 4).await;
    site.stop();
    site.ended().await;
}
