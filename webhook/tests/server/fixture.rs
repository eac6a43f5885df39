//! A server on loopback, an authority for its certificates, and clients.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use bindery_controller::{Reads, ReviewError, Reviewed};
use bindery_core::Finding;
use bindery_kit::{Authority, poll};
use bindery_webhook::Reviewer;
use bindery_webhook::certificates::{Authorities, Identity};
use bindery_webhook::server::{ConnectionStats, Limits, Server};
use bindery_webhook::tls::{Clients, Credentials};
use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::{http1, http2};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

/// How long anything may take before the test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How often a condition is checked.
pub(crate) const TICK: Duration = Duration::from_millis(5);
pub(crate) const NAME: &str = "bindery.kube-system.svc";
/// Longest body that the router accepts.
pub(crate) const BODY_MAX: usize = 4096;

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

pub(crate) fn identity(authority: &Authority) -> Identity {
    let (certificate, key) = authority.server(NAME);
    Identity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap()
}

pub(crate) struct TestServer {
    pub(crate) authority: Authority,
    pub(crate) address: SocketAddr,
    pub(crate) credentials: Credentials,
    pub(crate) stats: Arc<ConnectionStats>,
    /// Each request to `/held` waits for a permit.
    pub(crate) held: Arc<Semaphore>,
    /// How many requests to `/held` have arrived.
    pub(crate) arrived: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        // A busy machine may pause for longer than the default.
        Self::start_with(Limits { handshake_max: PATIENCE, ..Limits::default() }, None).await
    }

    pub(crate) async fn start_with(limits: Limits, clients: Option<Clients>) -> Self {
        let held = Arc::new(Semaphore::new(0));
        let arrived = Arc::<AtomicUsize>::default();
        let (gate, arrivals) = (Arc::clone(&held), Arc::clone(&arrived));
        let router = Router::new()
            .route("/validate", post(async |body: Bytes| body))
            .route(
                "/held",
                post(async move |body: Bytes| {
                    arrivals.fetch_add(1, Ordering::Relaxed);
                    gate.acquire().await.unwrap().forget();
                    body
                }),
            )
            .layer(DefaultBodyLimit::max(BODY_MAX));
        Self { held, arrived, ..Self::with_router(router, limits, clients).await }
    }

    pub(crate) async fn with_router(router: Router, limits: Limits, clients: Option<Clients>) -> Self {
        let authority = Authority::new();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let credentials = Credentials::new(identity(&authority), clients);
        let stats = Arc::<ConnectionStats>::default();
        let (stop, stopped) = oneshot::channel();
        let shown = Some(credentials.clone());
        let server = Server::new(listener, shown, limits, Arc::clone(&stats));
        let served = tokio::spawn(server.serve(router, async {
            let _ = stopped.await;
        }));
        let (held, arrived) = (Arc::new(Semaphore::new(0)), Arc::default());
        Self { authority, address, credentials, stats, held, arrived, stop: Some(stop), served }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.authority.pem())
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    pub(crate) fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn ended(self) {
        tokio::time::timeout(PATIENCE, self.served).await.expect("the server ends").unwrap();
    }

    /// Waits until this many requests to `/held` have arrived.
    pub(crate) async fn until_arrived(&self, requests: usize) {
        self.until("all requests arrived", |_| self.arrived.load(Ordering::Relaxed) == requests).await;
    }

    /// Waits until a condition of the counters holds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&ConnectionStats) -> bool) {
        let held = poll(TICK, PATIENCE, async || holds(&self.stats).then_some(())).await;
        assert!(held.is_some(), "never {what}: {:?}", self.stats);
    }
}

pub(crate) struct Client {
    authorities: String,
    versions: Vec<&'static SupportedProtocolVersion>,
    identity: Option<(String, String)>,
    is_http2: bool,
}

impl Client {
    pub(crate) fn new(authorities: &str) -> Self {
        Self {
            authorities: authorities.to_owned(),
            versions: vec![&TLS13, &TLS12],
            identity: None,
            is_http2: false,
        }
    }

    pub(crate) fn only(self, version: &'static SupportedProtocolVersion) -> Self {
        Self { versions: vec![version], ..self }
    }

    pub(crate) fn with(self, identity: (String, String)) -> Self {
        Self { identity: Some(identity), ..self }
    }

    pub(crate) fn http2(self) -> Self {
        Self { is_http2: true, ..self }
    }

    fn config(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(self.authorities.as_bytes()) {
            roots.add(authority.unwrap()).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(&self.versions).unwrap().with_root_certificates(roots);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        config.alpn_protocols = vec![if self.is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        config
    }

    pub(crate) async fn handshake(&self, address: SocketAddr) -> Result<TlsStream<TcpStream>, Error> {
        let stream = TcpStream::connect(address).await?;
        // As Go does.
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(NAME).unwrap();
        Ok(TlsConnector::from(Arc::new(self.config())).connect(name, stream).await?)
    }

    /// Makes a connection for requests.
    pub(crate) async fn connect(&self, address: SocketAddr) -> Result<Connection, Error> {
        let stream = TokioIo::new(self.handshake(address).await?);
        if self.is_http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
            tokio::spawn(connection);
            Ok(Connection::Http2(sender))
        } else {
            let (sender, connection) = http1::handshake(stream).await?;
            tokio::spawn(connection);
            Ok(Connection::Http1(sender))
        }
    }

    /// Sends one request on a connection of its own.
    pub(crate) async fn ask(&self, address: SocketAddr) -> Result<Answer, Error> {
        self.connect(address).await?.ask("/validate", "review").await
    }
}

/// A body, whole or in pieces.
type Sent = UnsyncBoxBody<Bytes, Infallible>;

pub(crate) enum Connection {
    Http1(http1::SendRequest<Sent>),
    Http2(http2::SendRequest<Sent>),
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
    /// Whether the answer says that the connection closes.
    pub(crate) closes: bool,
}

impl Connection {
    pub(crate) async fn ask(&mut self, path: &str, body: &str) -> Result<Answer, Error> {
        self.ask_with(path, body, "").await
    }

    pub(crate) async fn ask_with(&mut self, path: &str, body: &str, token: &str) -> Result<Answer, Error> {
        self.send(path, Full::new(Bytes::from(body.to_owned())).boxed_unsync(), token).await
    }

    /// Sends a request without a length.
    pub(crate) async fn ask_in_pieces(&mut self, path: &str, body: &str) -> Result<Answer, Error> {
        let pieces = body.as_bytes().chunks(16 * 1024).map(Bytes::copy_from_slice);
        let pieces: Vec<_> = pieces.map(|piece| Ok(Frame::data(piece))).collect();
        self.send(path, StreamBody::new(stream::iter(pieces)).boxed_unsync(), "").await
    }

    async fn send(&mut self, path: &str, body: Sent, token: &str) -> Result<Answer, Error> {
        let response = match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                let request = Request::post(path).header("host", NAME);
                let request = request.header("authorization", token).body(body)?;
                sender.send_request(request).await?
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                let request = Request::post(format!("https://{NAME}{path}"));
                sender.send_request(request.header("authorization", token).body(body)?).await?
            }
        };
        let (head, body) = response.into_parts();
        let body = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
        let closes = head.headers.get("connection").is_some_and(|value| value == "close");
        Ok(Answer { status: head.status, body, closes })
    }
}

/// Checks the answer to `review`.
pub(crate) fn check(answer: &Answer) {
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "review"));
}

#[allow(dead_code, reason = "not each test file reviews")]
pub(crate) struct NoFindings;

impl Reviewer for NoFindings {
    async fn review(&self, _: Reviewed, _: Reads) -> Result<Vec<Finding>, ReviewError> {
        Ok(Vec::new())
    }
}

pub(crate) fn clients(authority: &Authority, names: &[&str]) -> Clients {
    let authorities = Authorities::from_pem(authority.pem().as_bytes()).unwrap();
    Clients { authorities, names: names.iter().map(|name| (*name).to_owned()).collect() }
}
