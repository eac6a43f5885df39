//! A proxy in front of the API server that makes faults.

mod serve;
mod tls;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::ControlPlane;

/// What a [`Proxy`] does with requests, answers and events.
pub trait Weather: Send + Sync + 'static {
    /// What to do with a request.
    fn before(&self, _: &Asked) -> Before {
        Before::Pass
    }

    /// What to do with an answer of the API server to a request other than a watch.
    fn after(&self, _: &Asked, _: &Answered) -> After {
        After::Pass
    }

    /// What to send instead of an event of a watch, where the proxy [speaks JSON](Proxy::start_in_json). An
    /// event is one line; an empty result sends nothing.
    fn event(&self, _: &Asked, line: Bytes) -> Bytes {
        line
    }
}

/// No faults.
#[derive(Clone, Copy, Debug)]
pub struct Fair;

impl Weather for Fair {}

/// A request.
#[derive(Clone, Debug)]
pub struct Asked {
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
pub struct Answered {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
}

/// What the proxy does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// Forwards it.
    Pass,
    /// Forwards it after this time.
    Delay(Duration),
    /// Answers with this status instead of forwarding it.
    Refuse {
        /// The status.
        status: StatusCode,
        /// Seconds of the header `Retry-After`.
        retry_after: Option<u32>,
    },
    /// Answers this instead of forwarding it.
    Answer(Answered),
    /// Cuts the connection instead of forwarding it.
    Cut,
    /// Cuts all connections, also those of watches, instead of forwarding it.
    CutAll,
}

/// What the proxy does with an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// Sends it back.
    Pass,
    /// Cuts the connection, so the answer is lost.
    Lose,
    /// Sends another body back.
    Forge(Bytes),
}

/// A proxy that terminates TLS with its own certificate. Its [`Weather`] decides what it does; at first it
/// makes no faults.
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
    weather: RwLock<Arc<dyn Weather>>,
    /// Cancelled to cut all current connections.
    connections: Mutex<CancellationToken>,
    /// How many requests have arrived.
    count: AtomicU64,
    /// How many connections were accepted.
    connections_count: AtomicU64,
    /// How many of the first connections are dead.
    dead: AtomicU64,
    /// Forwarded requests, in the order of arrival.
    asked: Mutex<Vec<Asked>>,
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
    fn holds(&self, asked: &Asked) -> bool {
        let is_stalled = |(path, end): &(String, u64)| asked.path == *path && asked.number < *end;
        self.all || self.stalled.iter().any(is_stalled)
    }
}

impl Asked {
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
    /// Starts a proxy in front of a control plane.
    ///
    /// # Errors
    ///
    /// There is no free port, or the control plane's kubeconfig cannot be read.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        Self::start_with(plane, false).await
    }

    /// Starts a proxy that asks the API server for JSON, so that a test can read and replace answers and
    /// events.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub async fn start_in_json(plane: &ControlPlane) -> Result<Self> {
        Self::start_with(plane, true).await
    }

    async fn start_with(plane: &ControlPlane, in_json: bool) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("bindery-proxy-").tempdir()?;
        let identity = tls::Identity::new()?;
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("the proxy finds no free port")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream: upstream(plane).await?,
            in_json,
            weather: RwLock::new(Arc::new(Fair)),
            connections: Mutex::default(),
            count: AtomicU64::new(0),
            connections_count: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            asked: Mutex::default(),
            watches: Mutex::default(),
            held: watch::Sender::default(),
        });
        let running = CancellationToken::new();
        let serving = serve::run(Arc::clone(&shared), listener, identity.acceptor()?);
        tokio::spawn(running.clone().run_until_cancelled_owned(serving));
        let started = Self { shared, folder, address, _running: running.drop_guard() };
        started.write_kubeconfig(plane, &identity.authority)?;
        Ok(started)
    }

    /// The kubeconfig of clients.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Sets what it does from the next request on.
    pub fn set_weather(&self, weather: impl Weather) {
        *self.shared.weather.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(weather);
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

    /// Sends a line into every watch of a path, and returns how many there are. The proxy must speak JSON.
    pub fn tell(&self, path: &str, event: &Value) -> usize {
        let line = Bytes::from(format!("{event}\n"));
        let mut watches = lock(&self.shared.watches);
        watches.retain(|(_, sender)| !sender.is_closed());
        let of_path = watches.iter().filter(|(watched, _)| watched == path);
        of_path.filter(|(_, sender)| sender.send(line.clone()).is_ok()).count()
    }

    /// The requests that were forwarded since the last call, also watches.
    pub fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *lock(&self.shared.asked))
    }

    fn write_kubeconfig(&self, plane: &ControlPlane, authority: &str) -> Result<()> {
        let mut kubeconfig: Value = serde_json::from_slice(&fs::read(plane.kubeconfig())?)?;
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

/// A client that retries nothing.
async fn upstream(plane: &ControlPlane) -> Result<kube::Client> {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig())?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
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
