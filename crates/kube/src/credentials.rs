//! The credentials that a client shows its API server, and whether the server accepts them.
//!
//! kube reads certificates and keys once, and runs a credential plugin again only before its token expires.
//! Here each file is read again when its content changes, a plugin is run again before its credentials
//! expire, and both happen when the API server refuses the credentials. All clones of an
//! [`crate::ApiClient`] then use a new [`kube::Client`]. Requests and watches in flight end on the
//! connections on which they began.

mod keeper;
pub(crate) mod kubeconfig;
mod plugin;
mod source;

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_rustls::rustls::{AlertDescription, Error as TlsError};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::keeper::Keeper;
use self::source::Source;
use crate::connect::connect;

/// Credentials count as refused when they have been refused, and never accepted, for this long. An API server
/// also answers 401 while its authentication webhook does not respond.
const REFUSED_AFTER: Duration = Duration::from_secs(10);

/// Why credentials cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// The process does not run in a pod with a service account.
    #[error("{0}")]
    NotInCluster(String),
    /// The kubeconfig cannot be read or lacks something.
    #[error("{0}")]
    Kubeconfig(String),
    /// A field of the kubeconfig, or a file of the service account, cannot be used.
    #[error("{field} {why}")]
    Field {
        /// Name of the field, path if it is a file, and the cluster or user that it belongs to.
        field: String,
        /// The reason and the remedy.
        why: String,
    },
    /// A credential plugin failed.
    #[error("credential plugin {command} {why}")]
    Plugin {
        /// Command of the plugin.
        command: String,
        /// The reason.
        why: String,
    },
}

/// The client in use, and whether its API server accepts the credentials.
pub(crate) struct Credentials {
    shared: Arc<Shared>,
    /// A client with connections of its own, and the generation of its credentials.
    own: Option<Mutex<(u64, kube::Client)>>,
    /// Stops the task that follows files and plugins.
    following: Option<Arc<DropGuard>>,
}

struct Shared {
    current: Mutex<Current>,
    /// Why the credentials are refused.
    refusal: watch::Sender<Option<String>>,
    /// Notified of the first refusal after the credentials were accepted.
    refused: Notify,
}

struct Current {
    connected: Connected,
    /// Number of credentials that were in use before.
    generation: u64,
    /// The first refusal since credentials were last accepted.
    refused_since: Option<Instant>,
}

/// A client, and how it was made.
struct Connected {
    client: kube::Client,
    /// Makes another client with the same credentials; `None` for a client that was given.
    config: Option<kube::Config>,
}

/// What an answer says about the credentials of its request.
enum Acceptance {
    Accepted,
    Refused(String),
    /// Nothing: the server failed before it checked them, or there was no answer.
    Unknown,
}

impl Credentials {
    /// The credentials of an existing client, which never change.
    pub(crate) fn fixed(client: kube::Client) -> Self {
        let shared = Arc::new(Shared::new(Connected { client, config: None }));
        Self { shared, own: None, following: None }
    }

    /// The credentials that these inputs make, followed as long as this lives.
    pub(crate) async fn follow(mut source: Source) -> Result<Self, CredentialsError> {
        source.ask_plugin().await?;
        let used = source.read()?;
        let shared = Arc::new(Shared::new(source.client(&used)?));
        let stop = CancellationToken::new();
        let keeper = Keeper { shared: Arc::clone(&shared), source, used, logged: None };
        tokio::spawn(stop.clone().run_until_cancelled_owned(keeper.run()));
        Ok(Self { shared, own: None, following: Some(Arc::new(stop.drop_guard())) })
    }

    /// The same credentials over new connections. A client that was given keeps its connections.
    pub(crate) fn with_new_connections(&self) -> Self {
        let own = self.shared.current.lock().reconnected();
        Self {
            shared: Arc::clone(&self.shared),
            own: Some(Mutex::new(own)),
            following: self.following.clone(),
        }
    }

    /// Sends a request with the current credentials.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let (generation, client) = self.client();
        self.shared.send(generation, client, request).await
    }

    fn client(&self) -> (u64, kube::Client) {
        let current = self.shared.current.lock();
        let Some(own) = &self.own else { return current.client() };
        let mut own = own.lock();
        if own.0 != current.generation {
            *own = current.reconnected();
        }
        own.clone()
    }

    /// Why the credentials are refused; `None` while they are accepted or nothing is known.
    pub(crate) fn refusal(&self) -> watch::Receiver<Option<String>> {
        self.shared.refusal.subscribe()
    }
}

impl Shared {
    fn new(connected: Connected) -> Self {
        let current = Mutex::new(Current { connected, generation: 0, refused_since: None });
        Self { current, refusal: watch::Sender::new(None), refused: Notify::new() }
    }

    /// Sends a request by the client of that generation, and notes what the answer says about it.
    async fn send(
        &self,
        generation: u64,
        client: kube::Client,
        request: Request<Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let answer = client.send(request).await;
        self.note(generation, Acceptance::of(&answer));
        answer
    }

    fn note(&self, generation: u64, acceptance: Acceptance) {
        let mut current = self.current.lock();
        // An answer to credentials of before says nothing about the current ones.
        if current.generation != generation {
            return;
        }
        match acceptance {
            Acceptance::Unknown => {}
            Acceptance::Accepted => {
                if current.refused_since.take().is_some() && self.refusal.send_replace(None).is_some() {
                    tracing::info!("the API server accepts the credentials again");
                }
            }
            Acceptance::Refused(why) => {
                let since = *current.refused_since.get_or_insert_with(|| {
                    self.refused.notify_one();
                    Instant::now()
                });
                if since.elapsed() >= REFUSED_AFTER && self.publish(&why) {
                    tracing::error!(why, "the API server refuses the credentials of this replica");
                }
            }
        }
    }

    /// Publishes a refusal. Returns whether none was published before.
    fn publish(&self, why: &str) -> bool {
        self.refusal.send_if_modified(|told| {
            let is_news = told.is_none();
            if is_news {
                *told = Some(why.to_owned());
            }
            is_news
        })
    }

    /// Whether the credentials were refused, and not accepted since.
    fn is_refused(&self) -> bool {
        self.current.lock().refused_since.is_some()
    }

    fn replace(&self, connected: Connected) {
        let mut current = self.current.lock();
        current.connected = connected;
        current.generation += 1;
    }
}

impl Current {
    fn client(&self) -> (u64, kube::Client) {
        (self.generation, self.connected.client.clone())
    }

    fn reconnected(&self) -> (u64, kube::Client) {
        match self.connected.config.clone().map(connect) {
            Some(Ok(client)) => (self.generation, client),
            Some(Err(error)) => {
                tracing::warn!(%error, "new connections to the API server cannot be made; old ones are used");
                self.client()
            }
            None => self.client(),
        }
    }
}

impl Acceptance {
    fn of(answer: &Result<Response<Body>, kube::Error>) -> Self {
        match answer.as_ref().map(Response::status) {
            Ok(StatusCode::UNAUTHORIZED) => Self::Refused("it answers 401 Unauthorized".to_owned()),
            Ok(status) if status.is_server_error() => Self::Unknown,
            Ok(_) => Self::Accepted,
            Err(error) => handshake_refusal(error).map_or(Self::Unknown, Self::Refused),
        }
    }
}

/// Why a TLS handshake failed, if a certificate of either side is the reason.
fn handshake_refusal(error: &kube::Error) -> Option<String> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        match error.downcast_ref::<TlsError>() {
            Some(TlsError::InvalidCertificate(why)) => {
                return Some(format!("its own certificate is not accepted: {why}"));
            }
            Some(TlsError::AlertReceived(alert)) if is_about_certificates(*alert) => {
                return Some(format!("it refuses the TLS handshake: {alert:?}"));
            }
            _ => {}
        }
        // `source` of an `io::Error` skips the error that it wraps.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = wrapped.map(|wrapped| wrapped as &(dyn StdError + 'static)).or_else(|| error.source());
    }
    None
}

/// Whether a server sends this alert because of the client's certificate or the lack of one.
fn is_about_certificates(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::HandshakeFailure
            | AlertDescription::UnknownCA
            | AlertDescription::UnsupportedCertificate
    )
}

#[cfg(test)]
mod tests;
