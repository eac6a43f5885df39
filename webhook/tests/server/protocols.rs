//! Versions of TLS and HTTP, and what is none of them.

use std::time::Duration;

use bindery_webhook::server::Limits;
use hyper::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::rustls::version::{TLS12, TLS13};

use super::world::{BODY_MAX, Call, NAME, Site, check};

/// A hello of TLS 1.1 (RFC 4346) that lacks nothing but the version: with a cipher suite of TLS 1.2, a group
/// and a signature scheme.
fn hello_of_tls_1_1() -> Vec<u8> {
    let suites = [0, 2, 0xc0, 0x2b];
    let extensions = [0, 16, 0, 10, 0, 4, 0, 2, 0, 23, 0, 13, 0, 4, 0, 2, 4, 3];
    let body = [&[3, 2][..], &[7; 32], &[0], &suites, &[1, 0], &extensions].concat();
    let length = u16::try_from(body.len()).unwrap();
    let handshake = [&[1, 0][..], &length.to_be_bytes(), &body].concat();
    let length = u16::try_from(handshake.len()).unwrap();
    [&[22, 3, 1][..], &length.to_be_bytes(), &handshake].concat()
}

#[tokio::test]
async fn tls_1_3_and_1_2_pass_with_either_version_of_http() {
    let site = Site::start().await;
    for version in [&TLS13, &TLS12] {
        check(&site.client().only(version).ask(site.address).await.unwrap());
        check(&site.client().only(version).http2().ask(site.address).await.unwrap());
    }
}

#[tokio::test]
async fn tls_1_1_is_not_offered() {
    let site = Site::start().await;
    let mut stream = site.connect().await;
    stream.write_all(&hello_of_tls_1_1()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    // An alert (21), fatal (2): protocol_version (70).
    assert_eq!((answer[0], &answer[answer.len() - 2..]), (21, &[2, 70][..]), "{answer:?}");
    check(&site.client().ask(site.address).await.unwrap());
}

#[tokio::test]
async fn who_speaks_http_without_tls_is_told_so() {
    let site = Site::start().await;
    for request in
        ["GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n", "POST /validate HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n\r\n"]
    {
        let mut stream = site.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{answer}");
        assert_eq!(body, "This server speaks HTTPS; the request was HTTP.");
    }
    assert_eq!(site.traffic.handshake_errors(), 3);
    check(&site.client().ask(site.address).await.unwrap());
}

#[tokio::test]
async fn nonsense_is_closed() {
    let site = Site::start().await;
    for nonsense in [&[0; 64][..], b"nonsense", &[22, 3, 1, 0xff, 0xff], &[22; 20_000]] {
        let mut stream = site.connect().await;
        // The server may close before it has read everything.
        let _ = stream.write_all(nonsense).await;
        let _ = stream.shutdown().await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    site.until("four failed", |traffic| traffic.handshake_errors() == 4).await;
    check(&site.client().ask(site.address).await.unwrap());
}

#[tokio::test]
async fn a_request_that_is_too_long_is_refused_and_the_next_one_answered() {
    let site = Site::start().await;
    let mut call = site.client().call(site.address).await.unwrap();
    let long = "x".repeat(BODY_MAX + 1);
    assert_eq!(call.ask("/validate", &long).await.unwrap().status, StatusCode::PAYLOAD_TOO_LARGE);
    check(&site.client().ask(site.address).await.unwrap());
    let mut stream = site.client().greet(site.address).await.unwrap();
    // A head without end: it is cut off, told or not.
    let _ =
        stream.write_all(format!("POST /validate HTTP/1.1\r\nX: {}", "x".repeat(300_000)).as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
    check(&site.client().ask(site.address).await.unwrap());
}

#[tokio::test]
async fn requests_beyond_what_a_connection_of_http2_takes_wait_in_the_client_and_are_answered() {
    // As many as there may be at the same time, and as many as are asked for.
    const STREAMS_MAX: usize = 16;
    const REQUESTS: usize = 100;
    let site = Site::start().await;
    let Call::Http2(sender) = site.client().http2().call(site.address).await.unwrap() else { unreachable!() };
    // The answer comes after the server's settings.
    check(&Call::Http2(sender.clone()).ask("/validate", "review").await.unwrap());
    let mut waiting = Vec::new();
    for _ in 0..REQUESTS {
        let mut call = Call::Http2(sender.clone());
        waiting.push(tokio::spawn(async move { call.ask("/held", "review").await.unwrap() }));
    }
    site.until_came(STREAMS_MAX).await;
    site.held.add_permits(REQUESTS);
    for answered in waiting {
        check(&answered.await.unwrap());
    }
}

#[tokio::test]
async fn more_headers_by_http2_than_anybody_needs_are_refused_and_the_next_request_is_answered() {
    let site = Site::start().await;
    let mut call = site.client().http2().call(site.address).await.unwrap();
    for (bytes, status) in [(3_000, StatusCode::OK), (5_000, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)] {
        assert_eq!(call.ask_with("/validate", "review", &"x".repeat(bytes)).await.unwrap().status, status);
    }
    check(&call.ask("/validate", "review").await.unwrap());
}

#[tokio::test]
async fn a_body_that_does_not_end_is_not_waited_for() {
    let limits = Limits { request_max: Duration::from_millis(200), ..Limits::default() };
    let site = Site::start_with(limits, None).await;
    let mut stream = site.client().greet(site.address).await.unwrap();
    let head = format!("POST /validate HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 100\r\n\r\nreview");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    check(&site.client().ask(site.address).await.unwrap());
}

/// One thread runs client and server, so a request on another connection is answered only after the server
/// has had the chance to see what came before it.
#[tokio::test]
async fn a_client_that_closes_its_sending_half_gets_its_answer() {
    let site = Site::start().await;
    let mut stream = site.client().greet(site.address).await.unwrap();
    let request = format!("POST /held HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 6\r\n\r\nreview");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    site.until_came(1).await;
    check(&site.client().ask(site.address).await.unwrap());
    site.held.add_permits(1);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("review"), "{answer}");
    site.until("closed", |traffic| traffic.connections() == 0).await;
}

#[tokio::test]
async fn a_head_that_does_not_end_is_not_waited_for() {
    let limits = Limits { idle_max: Duration::from_millis(200), ..Limits::default() };
    let site = Site::start_with(limits, None).await;
    let mut stream = site.client().greet(site.address).await.unwrap();
    stream.write_all(b"POST /validate HTTP/1.1\r\nHost:").await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    site.until("closed", |traffic| traffic.connections() == 0).await;
}
