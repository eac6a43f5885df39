//! A client of an API server, with what all who use it must know: how much the server bears.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::credentials::{Credentials, CredentialsError};
use crate::encoding::Object;
use crate::limit::{Limit, Permit, Pressure};
use crate::rest::{self, Fault};
use crate::traffic::Traffic;

/// A client of one API server that spares the server. Cheap to clone.
///
/// All clones of one client share what is known of the server: how many requests it answers without queueing
/// them, and until when it has asked not to be sent any (`Retry-After`; what it may ask for is bounded). So a
/// process is to make one of each server, and give clones of it to everything that asks that server. One that
/// is made from a [`kube::Client`] anew knows nothing of what others were told, and its credentials stay as
/// they are.
///
/// [`ApiClient::from_kubeconfig`] and [`ApiClient::in_cluster`] follow credentials as they rotate: files are
/// read again when they change, credential plugins are asked again before what they issued expires, and both
/// when the API server refuses.
///
/// The watches of a [`crate::CertificateStore`] are kube-runtime's: they back off by its rules.
#[derive(Clone)]
pub struct ApiClient {
    credentials: Arc<Credentials>,
    limit: Arc<Limit>,
    pause: Arc<Pause>,
    traffic: Traffic,
    /// How many requests were answered 403.
    denials: watch::Sender<u64>,
    /// Notified of each success.
    successes: Arc<Notify>,
    way: Way,
}

/// What a request waits for before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Room under the limit, and the end of a pause.
    Limited,
    /// The end of a pause: of who asks thus, each has one request under way at most.
    Patient,
    /// Nothing.
    AtOnce,
}

/// Until when the server has asked not to be sent requests.
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
            traffic: Traffic::new(),
            denials: watch::Sender::new(0),
            successes: Arc::default(),
            way: Way::Patient,
        }
    }
}

impl ApiClient {
    /// The client of the current context of a kubeconfig. The kubeconfig itself is read once, as by
    /// client-go; the files that it names are followed.
    ///
    /// May be dropped at any time: a credential plugin that runs then is killed.
    ///
    /// # Errors
    ///
    /// The kubeconfig, or what it names, cannot be used, or asks for something that is not supported.
    pub async fn from_kubeconfig(path: &Path) -> Result<Self, CredentialsError> {
        Ok(Credentials::from_kubeconfig(path).await?.into())
    }

    /// The client of the pod's service account.
    ///
    /// # Errors
    ///
    /// [`CredentialsError::NotInCluster`]: there is no service account.
    pub async fn in_cluster() -> Result<Self, CredentialsError> {
        Ok(Credentials::in_cluster().await?.into())
    }

    /// The same, over connections that no other request has used. A client that was made of a
    /// [`kube::Client`] keeps its connections.
    pub fn with_new_connections(&self) -> Self {
        Self { credentials: Arc::new(self.credentials.with_new_connections()), ..self.clone() }
    }

    /// Why the API server refuses the credentials of this client and its clones; `None` while it accepts them
    /// or does not answer. They count as refused when it has answered 401, or refused the TLS handshake, for
    /// ten seconds.
    pub fn refusal(&self) -> watch::Receiver<Option<String>> {
        self.credentials.refusal()
    }

    /// How many requests of this client and its clones the API server has answered with 403: for lack of a
    /// right, or by a policy.
    pub fn denials(&self) -> watch::Receiver<u64> {
        self.denials.subscribe()
    }

    /// The same for who has many requests under way: they share one limit.
    pub(crate) fn limited(self) -> Self {
        Self { way: Way::Limited, ..self }
    }

    /// The same for who cannot wait for pauses that others were asked for.
    pub(crate) fn at_once(self) -> Self {
        Self { way: Way::AtOnce, ..self }
    }

    /// Has the registry tell what was asked of the server, by this client and its clones:
    /// `rest_client_requests_total` and `rest_client_request_duration_seconds`, as client-go names them.
    pub fn register(&self, registry: &mut Registry) {
        self.traffic.register(registry);
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Sends a request at once.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        self.credentials.send(request).await
    }

    /// The same for kube-runtime; it knows of no limit and no pause.
    pub(crate) fn kube(&self) -> kube::Client {
        let credentials = Arc::clone(&self.credentials);
        let service = tower::service_fn(move |request| {
            let credentials = Arc::clone(&credentials);
            async move { credentials.send(request).await }
        });
        kube::Client::new(service, "default")
    }

    /// How many requests are sent at the same time, and why no more.
    pub(crate) fn pressure(&self) -> Pressure {
        self.limit.pressure()
    }

    /// Waits until a request may be sent; what it answers is to be kept until the request has ended.
    pub(crate) async fn turn(&self) -> Option<Permit<'_>> {
        match self.way {
            Way::AtOnce => None,
            Way::Patient => {
                self.pause.end().await;
                None
            }
            Way::Limited => loop {
                self.pause.end().await;
                let permit = self.limit.acquire().await;
                // While it waited for room, the server may have refused what was under way.
                if self.pause.left().is_none() {
                    return Some(permit);
                }
            },
        }
    }

    /// Takes note that the server has carried out a request.
    pub(crate) fn succeeded(&self) {
        self.successes.notify_waiters();
    }

    /// Waits until the server carries out a request of this client or of a clone.
    pub(crate) async fn until_success(&self) {
        self.successes.notified().await;
    }

    /// Takes note of a fault: whether the server was too busy, and what it asks for.
    pub(crate) fn heed(&self, fault: &Fault) {
        if fault.is_overload() {
            self.limit.count_refusal();
        }
        if fault.is_denial() {
            self.denials.send_modify(|denials| *denials += 1);
        }
        if let Some(pause) = fault.pause() {
            tracing::debug!(%fault, ?pause, "the API server asks for a pause");
            self.pause.ask(pause);
        }
    }

    /// What an object that stands for a failure says, in the middle of a stream; takes note of it.
    pub(crate) fn failure(&self, object: &Object) -> Fault {
        let fault = rest::failure(object);
        self.heed(&fault);
        fault
    }
}

impl Pause {
    fn ask(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut known = self.known();
        *known = Some(known.map_or(until, |known| known.max(until)));
    }

    /// When the pause ends, while it lasts.
    fn left(&self) -> Option<Instant> {
        self.known().filter(|until| *until > Instant::now())
    }

    async fn end(&self) {
        // It may be made longer meanwhile.
        while let Some(until) = self.left() {
            tokio::time::sleep_until(until).await;
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<Instant>> {
        // Every change is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
