//! The server of health and metrics, which shares what a process may open with the door.

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

use super::world::PATIENCE;

/// As many as the server says that it has at the same time.
const CONNECTIONS_MAX: usize = 64;
const SILENT: usize = 2_000;

/// Well, always.
struct Well;

impl Health for Well {
    fn live(&self) -> Vec<Check> {
        Vec::new()
    }

    fn ready(&self) -> Vec<Check> {
        Vec::new()
    }
}

/// A server that listens.
struct Face {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl Face {
    /// One with these metrics.
    async fn start(metrics: Registry) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(serve(listener, router(Well, metrics), async {
            let _ = stopped.await;
        }));
        Self { address, stop, served }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection on which it can be asked.
    async fn call(&self) -> SendRequest<Empty<Bytes>> {
        let (sender, connection) = handshake(TokioIo::new(self.connect().await)).await.unwrap();
        tokio::spawn(connection);
        sender
    }
}

/// Asks as a probe does.
async fn probe(call: &mut SendRequest<Empty<Bytes>>) {
    call.ready().await.unwrap();
    let request = Request::get("/livez").header("host", "pod").body(Empty::new()).unwrap();
    let response = call.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
}

/// Ends when the other side has closed it.
async fn closed(stream: &mut TcpStream) {
    while !matches!(stream.read(&mut [0; 1024]).await, Ok(0) | Err(_)) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_that_say_nothing_are_closed_and_probes_are_answered() {
    allow_files(SILENT + 1_000);
    let face = Face::start(Registry::default()).await;
    // One that scrapes again and again, on one connection.
    let mut scraper = face.call().await;
    probe(&mut scraper).await;
    let mut streams = Vec::new();
    for number in 0..SILENT {
        let mut stream = face.connect().await;
        // Every other one begins a request that does not end.
        if number % 2 == 0 {
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost:").await;
        }
        streams.push(stream);
        if number % 100 == 0 {
            probe(&mut scraper).await;
            probe(&mut face.call().await).await;
        }
    }
    let mut closing: FuturesUnordered<_> = streams.iter_mut().map(closed).collect();
    while closing.len() > CONNECTIONS_MAX {
        tokio::time::timeout(PATIENCE, closing.next()).await.expect("all but a few are closed");
    }
    probe(&mut scraper).await;

    // Nor do those keep the server that are left.
    face.stop.send(()).unwrap();
    tokio::time::timeout(PATIENCE, face.served).await.expect("the server ends").unwrap();
    while tokio::time::timeout(PATIENCE, closing.next()).await.expect("it is closed").is_some() {}
}

#[tokio::test]
async fn an_answer_that_nobody_reads_does_not_keep_the_server() {
    let mut metrics = Registry::default();
    // More than the system keeps for who does not read.
    metrics.register("large", "x".repeat(32 << 20), Counter::<u64>::default());
    let face = Face::start(metrics).await;
    let mut stream = face.connect().await;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: pod\r\n\r\n").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'H');
    probe(&mut face.call().await).await;
    face.stop.send(()).unwrap();
    tokio::time::timeout(PATIENCE, face.served).await.expect("the server ends").unwrap();
}
