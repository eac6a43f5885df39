//! A client of an API server, and what all its users must know of the server's load.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tower::ServiceBuilder;
use tower::timeout::TimeoutLayer;
use tower_http::timeout::ResponseBodyTimeoutLayer;

use crate::credentials::{Credentials, CredentialsError, kubeconfig};
use crate::encoding::EncodedObject;
use crate::events::Rate;
use crate::limit::{Limit, Permit, Pressure};
use crate::metrics::RequestMetrics;
use crate::rest::{self, Fault};
use crate::server_time::ServerTime;
use crate::watch::WatchLimits;

/// Longest time for a request other than a watch. An API server gives up after a minute at the latest.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A client of one API server that limits its own load on it. Cheap to clone.
///
/// All clones share what is known of the server: how many requests it answers without queueing them, and how
/// long it asked to be left alone (`Retry-After`, up to a maximum). So a process should make one client for
/// each server and clone it. A client made from a [`kube::Client`] starts without that knowledge, and keeps
/// its credentials.
///
/// [`ApiClient::from_kubeconfig`] and [`ApiClient::in_cluster`] follow credentials as they rotate. They read
/// files again when they change, run credential plugins again before their credentials expire, and do both
/// when the API server refuses the credentials.
///
/// The watches of a [`crate::CertificateStore`] belong to kube-runtime and back off by its rules.
#[derive(Clone)]
pub struct ApiClient {
    credentials: Arc<Credentials>,
    limit: Arc<Limit>,
    pause: Arc<Pause>,
    metrics: RequestMetrics,
    /// Number of requests that were answered 403.
    denials: watch::Sender<u64>,
    /// Notified of each success.
    successes: Arc<Notify>,
    server_time: ServerTime,
    event_rate: Arc<Rate>,
    waits: Waits,
    /// Longest time from sending a request to the end of its answer.
    timeout: Duration,
}

/// What a request waits for before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// Waits for a permit of the limit, and for Retry-After.
    ForPermit,
    /// Waits for Retry-After only; for callers that have at most one request in flight.
    ForPause,
    /// Never waits.
    Never,
}

/// Until when the server has asked to be left alone.
#[derive(Default)]
struct Pause(Mutex<Option<Instant>>);

impl From<kube::Client> for ApiClient {
    fn from(kube: kube::Client) -> Self {
        Credentials::fixed(kube).into()
    }
}

impl From<Credentials> for ApiClient {
    fn from(credentials: Credentials) -> Self {
        Self {
            credentials: Arc::new(credentials),
            limit: Arc::new(Limit::new()),
            pause: Arc::default(),
            metrics: RequestMetrics::new(),
            denials: watch::Sender::new(0),
            successes: Arc::default(),
            server_time: ServerTime::default(),
            event_rate: Arc::default(),
            waits: Waits::ForPause,
            timeout: TIMEOUT,
        }
    }
}

impl ApiClient {
    /// The client of the current context of a kubeconfig. The kubeconfig is read once, as by client-go; the
    /// files that it names are read again when they change.
    ///
    /// The future may be dropped at any time: this kills a credential plugin that runs.
    pub async fn from_kubeconfig(path: &Path) -> Result<Self, CredentialsError> {
        Ok(Credentials::follow(kubeconfig::read(Some(path), None).await?).await?.into())
    }

    /// The client of a context of a kubeconfig as kubectl finds both, and the namespace of the context.
    /// Without a path the kubeconfig is that of `KUBECONFIG`, else `~/.kube/config`; without a name the
    /// context is the current one.
    pub async fn of_user(
        path: Option<&Path>,
        context: Option<&str>,
    ) -> Result<(Self, String), CredentialsError> {
        let source = kubeconfig::read(path, context).await?;
        let namespace = source.namespace().to_owned();
        Ok((Credentials::follow(source).await?.into(), namespace))
    }

    /// The client of the pod's service account.
    pub async fn in_cluster() -> Result<Self, CredentialsError> {
        Ok(Credentials::follow(kubeconfig::in_cluster()?).await?.into())
    }

    /// The same client with this limit in place of a minute.
    pub(crate) fn within(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// The rate limit of requests for events.
    pub(crate) fn event_rate(&self) -> &Rate {
        &self.event_rate
    }

    /// Longest time from sending a request to the end of its answer.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The same client over new connections of its own. A client made from a [`kube::Client`] keeps its
    /// connections.
    pub(crate) fn with_new_connections(&self) -> Self {
        Self { credentials: Arc::new(self.credentials.with_new_connections()), ..self.clone() }
    }

    /// Why the API server refuses the credentials of this client and its clones; `None` while it accepts them
    /// or does not answer. They count as refused when it has answered 401, or refused the TLS handshake, for
    /// ten seconds.
    pub fn refusal(&self) -> watch::Receiver<Option<String>> {
        self.credentials.refusal()
    }

    /// Number of requests of this client and its clones that the API server answered with 403: the user
    /// lacks a right, or a policy denies the request.
    pub fn denials(&self) -> watch::Receiver<u64> {
        self.denials.subscribe()
    }

    /// For callers with many requests in flight, which share one limit.
    pub(crate) fn limited(self) -> Self {
        Self { waits: Waits::ForPermit, ..self }
    }

    /// For callers that cannot wait while the server has asked others to pause.
    pub(crate) fn at_once(self) -> Self {
        Self { waits: Waits::Never, ..self }
    }

    /// Registers the metrics of this client and its clones: `rest_client_requests_total` and
    /// `rest_client_request_duration_seconds`.
    pub fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    pub(crate) fn metrics(&self) -> &RequestMetrics {
        &self.metrics
    }

    /// The API server's clock.
    pub(crate) fn server_time(&self) -> &ServerTime {
        &self.server_time
    }

    /// Sends a request without waiting.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        self.credentials.send(request).await
    }

    /// The same client for kube-runtime, without limit and pauses. A watch ends if nothing comes for
    /// [`WatchLimits::silence`], so kube-runtime opens another one: a connection may die without a word.
    pub(crate) fn kube(&self) -> kube::Client {
        self.kube_heard(|| {})
    }

    /// The same, which calls `heard` whenever bytes of a successful answer come.
    pub(crate) fn kube_heard(&self, heard: impl Fn() + Clone + Send + Sync + 'static) -> kube::Client {
        let credentials = Arc::clone(&self.credentials);
        let service = tower::service_fn(move |request| {
            let (credentials, heard) = (Arc::clone(&credentials), heard.clone());
            async move {
                let answer = credentials.send(request).await?;
                let is_success = answer.status().is_success();
                let hear = move |frame| {
                    if is_success {
                        heard();
                    }
                    frame
                };
                Ok::<_, kube::Error>(answer.map(|body| body.map_frame(hear)))
            }
        });
        let limits = WatchLimits::default();
        let within = ServiceBuilder::new()
            .layer(TimeoutLayer::new(limits.answer))
            .layer(ResponseBodyTimeoutLayer::new(limits.silence));
        kube::Client::new(within.service(service), "default")
    }

    pub(crate) fn pressure(&self) -> Pressure {
        self.limit.pressure()
    }

    /// Waits until a request may be sent. The caller keeps the permit until the request has ended.
    pub(crate) async fn ready(&self) -> Option<Permit<'_>> {
        match self.waits {
            Waits::Never => None,
            Waits::ForPause => {
                self.pause.end().await;
                None
            }
            Waits::ForPermit => loop {
                self.pause.end().await;
                let permit = self.limit.acquire().await;
                // While this waited for a permit, the server may have refused a request in flight.
                if self.pause.left().is_none() {
                    return Some(permit);
                }
            },
        }
    }

    /// Reports that the server has carried out a request.
    pub(crate) fn succeeded(&self) {
        self.successes.notify_waiters();
    }

    /// Waits until the server carries out a request of this client or of a clone.
    pub(crate) async fn until_success(&self) {
        self.successes.notified().await;
    }

    /// Counts a request that was answered 403.
    pub(crate) fn denied(&self) {
        self.denials.send_modify(|denials| *denials += 1);
    }

    /// Counts a fault, and starts the pause that it asks for.
    pub(crate) fn failed(&self, fault: &Fault) {
        if fault.is_overload() {
            self.limit.count_refusal();
        }
        if fault.is_denial() {
            self.denied();
        }
        if let Some(pause) = fault.pause() {
            tracing::debug!(%fault, ?pause, "the API server asks for a pause");
            self.pause.begin(pause);
        }
    }

    /// The fault in an ERROR event of a stream, counted as [`failed`](Self::failed) does.
    pub(crate) fn failure(&self, object: &EncodedObject) -> Fault {
        let fault = rest::failure(object);
        self.failed(&fault);
        fault
    }
}

impl Pause {
    /// Begins a pause; one that ends later continues.
    fn begin(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut known = self.0.lock();
        *known = Some(known.map_or(until, |known| known.max(until)));
    }

    /// The end of the pause, while it lasts.
    fn left(&self) -> Option<Instant> {
        self.0.lock().filter(|until| *until > Instant::now())
    }

    async fn end(&self) {
        // The pause may become longer meanwhile.
        while let Some(until) = self.left() {
            tokio::time::sleep_until(until).await;
        }
    }
}
