//! What listens: the door, over TLS 1.3 or 1.2, by HTTP/1.1 or HTTP/2; and the server of health and metrics,
//! by HTTP/1.1 without TLS.
//!
//! # Guarantees
//!
//! - Nobody holds a server shut. There are so many connections at most ([`Limits::connections_max`]); for one
//!   more, that which has said nothing for longest is closed, and only where all of them await answers is the
//!   new one turned away. To await an answer is to have sent a whole request: the head of one keeps no place.
//! - Every wait for a peer has an end: for its handshake, for its request, and between requests.
//! - Other certificates are taken into use without touching a connection ([`Credentials`]).
//! - At the end, requests go on being answered until clients have been sent elsewhere, and those under way
//!   are finished.

mod connection;
mod crowd;
mod service;
mod traffic;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::traffic::Traffic;

use self::crowd::Crowd;
use crate::tls::Credentials;

/// How long no connection is taken after one could not be, as when the process has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How much a peer may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most connections at the same time.
    pub connections_max: usize,
    /// Longest time from connecting until the handshake is done, where there is one.
    pub handshake_max: Duration,
    /// Longest time from the head of a request until its answer, its body being read in it.
    pub request_max: Duration,
    /// Longest time without a request. A server that closes a connection on which a client is about to send a
    /// request loses it, and clients do not send a review twice. So this is longer than the 90 seconds after
    /// which API servers close idle connections themselves (`IdleConnTimeout` of Go's `DefaultTransport`).
    /// The head of a request must have come within it; how long its body may take is for who reads it.
    pub idle_max: Duration,
    /// For how long requests are still answered after the server was told to end: the time after which nobody
    /// is sent to it any more.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1_000,
            handshake_max: Duration::from_secs(5),
            // `timeoutSeconds` of a webhook is 30 at most: nobody waits for longer.
            request_max: Duration::from_secs(30),
            idle_max: Duration::from_secs(120),
            drain: Duration::from_secs(5),
        }
    }
}

/// A listening server.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// What all connections have in common.
struct Shared {
    /// `None`: without TLS.
    credentials: Option<Credentials>,
    limits: Limits,
    traffic: Arc<Traffic>,
    crowd: Crowd,
    /// Clients are asked to go elsewhere.
    leaving: CancellationToken,
    /// Connections are closed as soon as no request is under way.
    closing: CancellationToken,
}

impl Server {
    /// A server that shows these credentials; without any, one that speaks HTTP/1.1 without TLS.
    pub fn new(
        listener: TcpListener,
        credentials: Option<Credentials>,
        limits: Limits,
        traffic: Arc<Traffic>,
    ) -> Self {
        let crowd = Crowd::new(limits.connections_max, Arc::clone(&traffic));
        let (leaving, closing) = (CancellationToken::new(), CancellationToken::new());
        let shared = Shared { credentials, limits, traffic, crowd, leaving, closing };
        Self { listener, shared: Arc::new(shared) }
    }

    /// Answers until `shutdown`, and until the last request after it: see [`Limits::drain`].
    pub async fn serve(self, router: Router, shutdown: impl Future<Output = ()>) {
        let Self { listener, shared } = self;
        let tasks = TaskTracker::new();
        let drained = async {
            shutdown.await;
            shared.leaving.cancel();
            tokio::time::sleep(shared.limits.drain).await;
        };
        tokio::select! {
            () = drained => {}
            () = accept(&listener, &shared, &router, &tasks) => {}
        }
        drop(listener);
        shared.closing.cancel();
        tasks.close();
        if tokio::time::timeout(shared.limits.request_max, tasks.wait()).await.is_err() {
            // Answers that nobody reads.
            shared.crowd.close_all();
            tasks.wait().await;
        }
    }
}

/// Takes connections for as long as it is polled.
async fn accept(listener: &TcpListener, shared: &Arc<Shared>, router: &Router, tasks: &TaskTracker) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let Some(place) = shared.crowd.admit() else {
                    tracing::debug!(%peer, "turned away: all connections await answers");
                    continue;
                };
                if shared.credentials.is_none() {
                    place.member().greeted();
                }
                tasks.spawn(connection::serve(stream, peer, place, router.clone(), Arc::clone(shared)));
            }
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "no connection can be taken; trying again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whether it is that connection which has failed, and not the listener.
fn is_of_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
