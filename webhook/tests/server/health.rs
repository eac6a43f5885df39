//! The server of health and metrics, which shares the file descriptors of its process with the webhook.

use std::net::{Ipv4Addr, SocketAddr};

use bindery_kit::allow_files;
use bindery_webhook::{Check, Health, router, serve};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::fixture::PATIENCE;

/// The server's own limit.
const CONNECTIONS_MAX: usize = 64;
const SILENT: usize = 2_000;

struct Healthy;

impl Health for Healthy {
    fn ready(&self) -> Vec<Check> {
        Vec::new()
    }
}

struct HealthServer {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl HealthServer {
    async fn start(metrics: Registry) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(serve(listener, router(Healthy, metrics), async {
            let _ = stopped.await;
        }));
        Self { address, stop, served }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn request_sender(&self) -> SendRequest<Empty<Bytes>> {
        let (sender, connection) = handshake(TokioIo::new(self.connect().await)).await.unwrap();
        tokio::spawn(connection);
        sender
    }
}

/// Sends a probe and checks its answer.
async fn probe(sender: &mut SendRequest<Empty<Bytes>>) {
    sender.ready().await.unwrap();
    let request = Request::get("/livez").header("host", "pod").body(Empty::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
}

/// Waits until the server has closed the connection.
async fn closed(stream: &mut TcpStream) {
    while !matches!(stream.read(&mut [0; 1024]).await, Ok(0) | Err(_)) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_silent_connections_are_closed_and_probes_answered() {
    allow_files(SILENT + 1_000);
    let server = HealthServer::start(Registry::default()).await;
    // Prometheus scrapes on one connection.
    let mut scraper = server.request_sender().await;
    probe(&mut scraper).await;
    let mut streams = Vec::new();
    for number in 0..SILENT {
        let mut stream = server.connect().await;
        // Every other one begins a request and does not finish it.
        if number % 2 == 0 {
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost:").await;
        }
        streams.push(stream);
        if number % 100 == 0 {
            probe(&mut scraper).await;
            probe(&mut server.request_sender().await).await;
        }
    }
    let mut closing: FuturesUnordered<_> = streams.iter_mut().map(closed).collect();
    while closing.len() > CONNECTIONS_MAX {
        tokio::time::timeout(PATIENCE, closing.next()).await.expect("all but a few are closed");
    }
    probe(&mut scraper).await;

    // The rest do not delay the end.
    server.stop.send(()).unwrap();
    tokio::time::timeout(PATIENCE, server.served).await.expect("the server ends").unwrap();
    while tokio::time::timeout(PATIENCE, closing.next()).await.expect("it is closed").is_some() {}
}

#[tokio::test]
async fn an_unread_answer_does_not_delay_the_end() {
    let mut metrics = Registry::default();
    // More than the system buffers.
    metrics.register("large", "x".repeat(32 << 20), Counter::<u64>::default());
    let server = HealthServer::start(metrics).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: pod\r\n\r\n").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'H');
    probe(&mut server.request_sender().await).await;
    server.stop.send(()).unwrap();
    tokio::time::timeout(PATIENCE, server.served).await.expect("the server ends").unwrap();
}

#[tokio::test]
async fn given_a_client_that_ends_its_sending_half_answers_are_whole() {
    let mut metrics = Registry::default();
    // More than the system buffers, so the server reads the end of the request before it has sent all.
    metrics.register("large", "x".repeat(32 << 20), Counter::<u64>::default());
    let server = HealthServer::start(metrics).await;
    for (path, end) in [("/readyz", "\r\n\r\nok"), ("/metrics", "# EOF\n")] {
        let mut stream = server.connect().await;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: pod\r\n\r\n").as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let is_whole = answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(end.as_bytes());
        assert!(is_whole, "{path}: {} bytes", answer.len());
    }
}
