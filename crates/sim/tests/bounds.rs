//! No request costs more memory or time than the bounds allow, and pages of strangers are refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use bindery_sim::{RequestLog, Sim, SimOptions};
use futures::future::select_all;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt as _;

const VOLUMES: &str = "/api/v1/persistentvolumes";
const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
/// The longest body, as on the real server.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// The room for the bodies of all requests.
const BODIES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The largest object, as etcd stores it.
const OBJECT_BYTES_MAX: usize = 1024 * 1024 * 3 / 2;

fn sim() -> Sim {
    Sim::new(SimOptions { log: RequestLog::Off, ..SimOptions::default() })
}

/// A volume with that many bytes in an attribute.
fn volume(name: &str, bytes: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"a": "b"}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "d", "volumeHandle": "h", "volumeAttributes": {"k": "v".repeat(bytes)}},
        },
    })
}

/// Sends a request within the process.
async fn send(
    sim: &Sim,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> (StatusCode, Value) {
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let answer = sim.service().oneshot(request.body(Full::from(body.to_string())).unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    (head.status, serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap())
}

async fn create(sim: &Sim, object: &Value) -> (StatusCode, Value) {
    send(sim, Method::POST, VOLUMES, JSON, object).await
}

/// A patch that copies the metadata into itself, so that each copy doubles it, and then removes the copies.
fn doubling(copies: usize) -> Value {
    let path = |copy: usize| format!("/metadata/annotations/{copy}");
    let copy = |copy| json!({"op": "copy", "from": "/metadata", "path": path(copy)});
    let remove = |copy| json!({"op": "remove", "path": path(copy)});
    (0..copies).map(copy).chain((0..copies).map(remove)).collect()
}

#[tokio::test]
async fn copies_of_a_json_patch_are_bounded_by_the_sum_of_their_bytes() {
    let sim = sim();
    create(&sim, &volume("v", 0)).await;
    let path = format!("{VOLUMES}/v");
    let (status, _) = send(&sim, Method::PATCH, &path, JSON_PATCH, &doubling(8)).await;
    assert_eq!(status, 200);
    let (status, answer) = send(&sim, Method::PATCH, &path, JSON_PATCH, &doubling(24)).await;
    assert_eq!(status, 413);
    let message = "Request entity too large: The allowed size of all copies in a JSON patch is 3145728 bytes";
    assert_eq!(answer["message"], message);
}

#[tokio::test]
async fn an_object_that_etcd_would_not_store_is_refused() {
    let sim = sim();
    let (status, _) = create(&sim, &volume("small", OBJECT_BYTES_MAX - 10_000)).await;
    assert_eq!(status, 201);
    let (status, answer) = create(&sim, &volume("large", OBJECT_BYTES_MAX)).await;
    assert_eq!((status.as_u16(), &answer["message"]), (500, &json!("etcdserver: request is too large")));
    let patch = json!({"metadata": {"annotations": {"c": "d".repeat(20_000)}}});
    let path = format!("{VOLUMES}/small");
    let (status, _) = send(&sim, Method::PATCH, &path, "application/merge-patch+json", &patch).await;
    assert_eq!(status, 500);
}

#[tokio::test]
async fn versions_beyond_the_bytes_of_the_history_are_expired() {
    let sim = sim();
    let (_, created) = create(&sim, &volume("v", 1024 * 1024)).await;
    let first = created["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let watch = format!("{VOLUMES}?watch=1&timeoutSeconds=1&resourceVersion={first}");
    let at_first = format!("{VOLUMES}?resourceVersionMatch=Exact&resourceVersion={first}");
    assert_eq!(send(&sim, Method::GET, &at_first, "", &Value::Null).await.0, 200);
    // 64 MiB are kept.
    for note in 0..64 {
        let patch = json!({"metadata": {"annotations": {"note": note.to_string()}}});
        let path = format!("{VOLUMES}/v");
        send(&sim, Method::PATCH, &path, "application/merge-patch+json", &patch).await;
    }
    assert_eq!(send(&sim, Method::GET, &at_first, "", &Value::Null).await.0, 410);
    let (_, event) = send(&sim, Method::GET, &watch, "", &Value::Null).await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
}

/// A server on a socket.
async fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(sim().serve(listener, std::future::pending()));
    address
}

/// A connection on which the head of a creation and the beginning of its body were sent.
async fn post(address: SocketAddr, headers: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("POST {VOLUMES} HTTP/1.1\r\nHost: {address}\r\nContent-Type: {JSON}\r\n{headers}\r\n");
    // The server may answer, and close, before it has read the body.
    stream.write_all(head.as_bytes()).await.unwrap();
    let _ = stream.write_all(body).await;
    stream
}

/// The status of the answer.
async fn status(mut stream: TcpStream) -> u16 {
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    std::str::from_utf8(&head).unwrap().rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[tokio::test]
async fn a_body_that_is_too_long_or_broken_is_refused_at_once() {
    let address = serve().await;
    let length = format!("Content-Length: {}\r\n", BODY_BYTES_MAX + 1);
    assert_eq!(status(post(address, &length, b"").await).await, 413);
    let broken = post(address, "Transfer-Encoding: chunked\r\n", b"zz\r\n{}").await;
    assert_eq!(status(broken).await, 400);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_is_refused() {
    let address = serve().await;
    assert_eq!(status(post(address, "Content-Length: 2\r\n", b"{").await).await, 408);
}

#[tokio::test]
async fn bodies_beyond_the_room_for_all_are_refused() {
    let address = serve().await;
    let length = format!("Content-Length: {BODY_BYTES_MAX}\r\n");
    let stalling = vec![b' '; BODY_BYTES_MAX - 1];
    let mut answers = Vec::new();
    for _ in 0..=BODIES_BYTES_MAX / BODY_BYTES_MAX {
        answers.push(Box::pin(status(post(address, &length, &stalling).await)));
    }
    // Any of them may be the one without room; the others stall.
    let (first, _, _stalled) = select_all(answers).await;
    assert_eq!(first, 429);
    let volume = volume("v", 0).to_string();
    let length = format!("Content-Length: {}\r\n", volume.len());
    assert_eq!(status(post(address, &length, volume.as_bytes()).await).await, 201);
}

#[tokio::test]
async fn requests_for_other_hosts_and_from_other_origins_are_refused() {
    let address = serve().await;
    let port = address.port();
    for (host, origin, expected) in [
        (format!("127.0.0.1:{port}"), None, 200),
        (format!("LOCALHOST:{port}"), None, 200),
        (format!("localhost:{port}"), Some(format!("http://localhost:{port}")), 200),
        ("evil.example".to_owned(), None, 403),
        (format!("evil.example:{port}"), None, 403),
        ("127.0.0.1:1".to_owned(), None, 403),
        (format!("127.0.0.1:{port}"), Some("https://evil.example".to_owned()), 403),
        (format!("127.0.0.1:{port}"), Some("null".to_owned()), 403),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let origin_header = origin.as_ref().map_or(String::new(), |origin| format!("Origin: {origin}\r\n"));
        let head = format!("GET {VOLUMES} HTTP/1.1\r\nHost: {host}\r\n{origin_header}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(status(stream).await, expected, "{host} {origin:?}");
    }
    let volume = volume("v", 0).to_string();
    let from_a_page = format!("Origin: https://evil.example\r\nContent-Length: {}\r\n", volume.len());
    assert_eq!(status(post(address, &from_a_page, volume.as_bytes()).await).await, 403);
}
