//! Versions of TLS and HTTP, and broken protocols.

use std::time::Duration;

use bindery_webhook::server::Limits;
use hyper::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::fixture::{BODY_MAX, Connection, NAME, TestServer, check};

/// A hello of TLS 1.1 (RFC 4346) in which only the version is wrong: it has a cipher suite of TLS 1.2, a
/// group and a signature scheme.
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
async fn tls_1_1_is_refused() {
    let server = TestServer::start().await;
    let mut stream = server.connect().await;
    stream.write_all(&hello_of_tls_1_1()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    // An alert (21), fatal (2): protocol_version (70).
    assert_eq!((answer[0], &answer[answer.len() - 2..]), (21, &[2, 70][..]), "{answer:?}");
    check(&server.client().ask(server.address).await.unwrap());
}

#[tokio::test]
async fn http_without_tls_is_answered_with_the_reason() {
    let server = TestServer::start().await;
    for request in
        ["GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n", "POST /validate HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n\r\n"]
    {
        let mut stream = server.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{answer}");
        assert_eq!(body, "This server speaks HTTPS; the request was HTTP.");
    }
    assert_eq!(server.stats.handshake_errors.get(), 3);
    check(&server.client().ask(server.address).await.unwrap());
}

#[tokio::test]
async fn nonsense_instead_of_a_handshake_is_closed() {
    let server = TestServer::start().await;
    for nonsense in [&[0; 64][..], b"nonsense", &[22, 3, 1, 0xff, 0xff], &[22; 20_000]] {
        let mut stream = server.connect().await;
        // The server may close before it has read everything.
        let _ = stream.write_all(nonsense).await;
        let _ = stream.shutdown().await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    server.until("four failed", |stats| stats.handshake_errors.get() == 4).await;
    check(&server.client().ask(server.address).await.unwrap());
}

#[tokio::test]
async fn an_overlong_request_is_refused_and_the_next_one_answered() {
    let server = TestServer::start().await;
    let mut connection = server.client().connect(server.address).await.unwrap();
    let long = "x".repeat(BODY_MAX + 1);
    assert_eq!(connection.ask("/validate", &long).await.unwrap().status, StatusCode::PAYLOAD_TOO_LARGE);
    check(&server.client().ask(server.address).await.unwrap());
    let mut stream = server.client().handshake(server.address).await.unwrap();
    // A head without end is cut off, with or without an answer.
    let _ =
        stream.write_all(format!("POST /validate HTTP/1.1\r\nX: {}", "x".repeat(300_000)).as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
    check(&server.client().ask(server.address).await.unwrap());
}

#[tokio::test]
async fn requests_beyond_the_streams_of_http2_wait_and_are_answered() {
    // The server's limit, and the requests that are sent.
    const STREAMS_MAX: usize = 16;
    const REQUESTS: usize = 100;
    let server = TestServer::start().await;
    let Connection::Http2(sender) = server.client().http2().connect(server.address).await.unwrap() else {
        unreachable!()
    };
    // The answer comes after the server's settings.
    check(&Connection::Http2(sender.clone()).ask("/validate", "review").await.unwrap());
    let mut waiting = Vec::new();
    for _ in 0..REQUESTS {
        let mut connection = Connection::Http2(sender.clone());
        waiting.push(tokio::spawn(async move { connection.ask("/held", "review").await.unwrap() }));
    }
    server.until_arrived(STREAMS_MAX).await;
    server.held.add_permits(REQUESTS);
    for answered in waiting {
        check(&answered.await.unwrap());
    }
}

#[tokio::test]
async fn large_http2_headers_are_refused_and_the_next_request_answered() {
    let server = TestServer::start().await;
    let mut connection = server.client().http2().connect(server.address).await.unwrap();
    for (bytes, status) in [(3_000, StatusCode::OK), (5_000, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)] {
        assert_eq!(
            connection.ask_with("/validate", "review", &"x".repeat(bytes)).await.unwrap().status,
            status
        );
    }
    check(&connection.ask("/validate", "review").await.unwrap());
}

#[tokio::test]
async fn a_body_without_end_is_answered_with_a_timeout() {
    let limits = Limits { request_max: Duration::from_millis(200), ..Limits::default() };
    let server = TestServer::start_with(limits, None).await;
    let mut stream = server.client().handshake(server.address).await.unwrap();
    let head = format!("POST /validate HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 100\r\n\r\nreview");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    check(&server.client().ask(server.address).await.unwrap());
}

/// One thread runs client and server, so once a request on another connection is answered, the server has
/// seen the end of the first one.
#[tokio::test]
async fn a_client_that_closes_its_sending_half_gets_its_answer() {
    let server = TestServer::start().await;
    let mut stream = server.client().handshake(server.address).await.unwrap();
    let request = format!("POST /held HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 6\r\n\r\nreview");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    server.until_arrived(1).await;
    check(&server.client().ask(server.address).await.unwrap());
    server.held.add_permits(1);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("review"), "{answer}");
    server.until("closed", |stats| stats.connections() == 0).await;
}

#[tokio::test]
async fn a_head_without_end_closes_the_connection() {
    let limits = Limits { idle_max: Duration::from_millis(200), ..Limits::default() };
    let server = TestServer::start_with(limits, None).await;
    let mut stream = server.client().handshake(server.address).await.unwrap();
    stream.write_all(b"POST /validate HTTP/1.1\r\nHost:").await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    server.until("closed", |stats| stats.connections() == 0).await;
}
