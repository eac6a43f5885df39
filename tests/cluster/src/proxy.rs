//! A proxy in front of the API server that makes faults.

mod serve;
mod tls;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bindery_kit::Authority;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::control_plane::client_without_retries;

/// The faults that a [`Proxy`] makes. A function from requests to faults is one too.
pub trait Faults: Send + Sync + 'static {
    /// The fault of a request.
    fn on_request(&self, _: &Request) -> RequestFault {
        RequestFault::None
    }

    /// The fault of the API server's answer to a request that is not a watch.
    fn on_response(&self, _: &Request, _: &Response) -> ResponseFault {
        ResponseFault::None
    }

    /// The line that replaces an event of a watch, if the proxy [asks for JSON](Proxy::start_in_json). An
    /// empty line removes the event.
    fn on_event(&self, _: &Request, line: Bytes) -> Bytes {
        line
    }
}

impl<F: Fn(&Request) -> RequestFault + Send + Sync + 'static> Faults for F {
    fn on_request(&self, request: &Request) -> RequestFault {
        self(request)
    }
}

/// No faults.
#[derive(Clone, Copy, Debug)]
pub struct NoFaults;

impl Faults for NoFaults {}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its number among the proxy's requests.
    pub number: u64,
    /// Its method.
    pub method: Method,
    /// Its path, without the query.
    pub path: String,
    /// Its query, without the question mark.
    pub query: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
}

/// The fault of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// The request is forwarded.
    None,
    /// The request is forwarded after this time.
    Delay(Duration),
    /// The proxy answers with this status.
    Refuse {
        /// The status.
        status: StatusCode,
        /// Seconds of the header `Retry-After`.
        retry_after: Option<u32>,
    },
    /// The proxy sends this answer.
    Answer(Response),
    /// The proxy closes the connection.
    Cut,
    /// The proxy closes all connections, also those of watches.
    CutAll,
}

/// The fault of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseFault {
    /// The answer is sent back.
    None,
    /// The proxy closes the connection, so the answer is lost.
    Lose,
    /// Another body is sent back.
    Replace(Bytes),
}

/// A proxy that terminates TLS with its own certificate. At first it makes no faults.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    folder: TempDir,
    address: SocketAddr,
    _running: DropGuard,
}

struct Shared {
    upstream: kube::Client,
    /// Whether the proxy asks the API server for JSON, whatever clients accept.
    in_json: bool,
    faults: RwLock<Arc<dyn Faults>>,
    /// Cancelled to cut all current connections.
    connections: Mutex<CancellationToken>,
    /// How many requests have arrived.
    count: AtomicU64,
    /// How many connections were accepted.
    connections_count: AtomicU64,
    /// How many of the first connections are dead.
    dead: AtomicU64,
    /// Forwarded requests, in the order of arrival.
    forwarded: Mutex<Vec<Request>>,
    /// Senders of lines into watches, each with the path of its watch.
    watches: Mutex<Vec<(String, mpsc::UnboundedSender<Bytes>)>>,
    /// Watches whose events are held back.
    held: watch::Sender<Held>,
}

/// Watches whose events are held back.
#[derive(Debug, Default)]
struct Held {
    all: bool,
    /// A path, and the number below which its watches are stalled.
    stalled: Vec<(String, u64)>,
}

impl Held {
    fn holds(&self, request: &Request) -> bool {
        let is_stalled = |(path, end): &(String, u64)| request.path == *path && request.number < *end;
        self.all || self.stalled.iter().any(is_stalled)
    }
}

impl Request {
    /// Whether it is a watch.
    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"))
    }

    /// Whether it changes a volume or a claim.
    pub fn is_write(&self) -> bool {
        let resource =
            self.path.split('/').any(|part| matches!(part, "persistentvolumes" | "persistentvolumeclaims"));
        resource && self.method != Method::GET
    }
}

impl Proxy {
    /// Starts a proxy in front of the API server of a kubeconfig.
    pub async fn start(kubeconfig: &Path) -> Result<Self> {
        Self::start_with(kubeconfig, false).await
    }

    /// Starts a proxy that asks the API server for JSON, so that a test can read and replace answers and
    /// events.
    pub async fn start_in_json(kubeconfig: &Path) -> Result<Self> {
        Self::start_with(kubeconfig, true).await
    }

    async fn start_with(kubeconfig: &Path, in_json: bool) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("bindery-proxy-").tempdir()?;
        let authority = Authority::new();
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("the proxy finds no free port")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream: client_without_retries(kubeconfig).await?,
            in_json,
            faults: RwLock::new(Arc::new(NoFaults)),
            connections: Mutex::default(),
            count: AtomicU64::new(0),
            connections_count: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            forwarded: Mutex::default(),
            watches: Mutex::default(),
            held: watch::Sender::default(),
        });
        let running = CancellationToken::new();
        let serving = serve::run(Arc::clone(&shared), listener, tls::acceptor(&authority)?);
        tokio::spawn(running.clone().run_until_cancelled_owned(serving));
        let started = Self { shared, folder, address, _running: running.drop_guard() };
        started.write_kubeconfig(kubeconfig, &authority.pem())?;
        Ok(started)
    }

    /// The kubeconfig of clients.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Sets the faults of later requests.
    pub fn set_faults(&self, faults: impl Faults) {
        *self.shared.faults.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(faults);
    }

    /// Cuts all current connections, also those of watches.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Leaves all current connections open and answers no more requests on them, like a router that has
    /// forgotten them.
    pub fn forget_connections(&self) {
        let count = self.shared.connections_count.load(Ordering::Relaxed);
        self.shared.dead.store(count, Ordering::Relaxed);
    }

    /// Holds back all events of watches, or releases them.
    pub fn hold_watches(&self, held: bool) {
        self.shared.held.send_modify(|watches| watches.all = held);
    }

    /// Stalls the open watches of a path, like a dead connection that was not closed. Later watches work.
    pub fn stall_watches_of(&self, path: &str) {
        let stalled = (path.to_owned(), self.shared.count.load(Ordering::Relaxed));
        self.shared.held.send_modify(|watches| watches.stalled.push(stalled));
    }

    /// Sends an event into every watch of a path, and returns the number of watches. The proxy must ask for
    /// JSON.
    pub fn send_event(&self, path: &str, event: &Value) -> usize {
        let line = Bytes::from(format!("{event}\n"));
        let mut watches = lock(&self.shared.watches);
        watches.retain(|(_, sender)| !sender.is_closed());
        let of_path = watches.iter().filter(|(watched, _)| watched == path);
        of_path.filter(|(_, sender)| sender.send(line.clone()).is_ok()).count()
    }

    /// The requests that were forwarded since the last call, also watches.
    pub fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut *lock(&self.shared.forwarded))
    }

    fn write_kubeconfig(&self, upstream: &Path, authority: &str) -> Result<()> {
        let mut kubeconfig: Value = serde_json::from_slice(&fs::read(upstream)?)?;
        let certificate = self.folder.path().join("authority.crt");
        fs::write(&certificate, authority)?;
        kubeconfig["clusters"][0]["cluster"] =
            json!({"server": format!("https://{}", self.address), "certificate-authority": certificate});
        fs::write(self.kubeconfig(), kubeconfig.to_string())
            .context("the proxy's kubeconfig cannot be written")
    }
}

impl Shared {
    fn cut(&self) {
        std::mem::take(&mut *lock(&self.connections)).cancel();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one call, so a panic elsewhere leaves the value consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
