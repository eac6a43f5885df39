//! The HTTP server: TLS 1.3 or 1.2 with HTTP/1.1 or HTTP/2 for reviews, HTTP/1.1 without TLS for health and
//! metrics.
//!
//! # Guarantees
//!
//! - Connections are capped ([`Limits::connections_max`]). At the cap, a new connection closes another one:
//!   the oldest of those that never had an answer, else the one idle longest. A connection with a complete
//!   request in flight is never closed; if all have one, the new connection is closed.
//! - Each wait for a peer is limited: for its handshake, for its request, and between requests.
//! - A new certificate applies to new connections and leaves open ones alone ([`Credentials`]).
//! - After the shutdown signal, requests are answered until clients have moved to another replica
//!   ([`Limits::drain`]), and requests in flight are finished.

mod connection;
mod limiter;

use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::limiter::ConnectionStats;

use self::limiter::ConnectionLimiter;
use crate::tls::Credentials;

/// Pause after a failed accept, as when the process has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most open connections.
    pub connections_max: usize,
    /// Longest TLS handshake.
    pub handshake_max: Duration,
    /// Longest time from the head of a request to its answer, including the time to read the body.
    pub request_max: Duration,
    /// Longest time between requests, including the time to read the head of the next one. It is longer than
    /// the 90 seconds after which API servers close idle connections themselves (`IdleConnTimeout` of Go's
    /// `DefaultTransport`): a server that closes first may lose a review, which API servers do not retry.
    pub idle_max: Duration,
    /// Time after the shutdown signal during which requests are answered on new connections too: as long as
    /// a Service may take to route clients elsewhere.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1_000,
            handshake_max: Duration::from_secs(5),
            // The longest `timeoutSeconds` of a webhook.
            request_max: Duration::from_secs(30),
            idle_max: Duration::from_secs(120),
            drain: Duration::from_secs(5),
        }
    }
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// What all connections share.
struct Shared {
    /// `None` serves without TLS.
    credentials: Option<Credentials>,
    limits: Limits,
    limiter: Arc<ConnectionLimiter>,
    /// Cancelled at the shutdown signal: clients are told to reconnect.
    draining: CancellationToken,
    /// Cancelled after the drain: connections close as soon as they have no request in flight.
    closing: CancellationToken,
}

impl Server {
    /// A server with these credentials; without credentials it serves HTTP/1.1 without TLS.
    pub fn new(
        listener: TcpListener,
        credentials: Option<Credentials>,
        limits: Limits,
        stats: Arc<ConnectionStats>,
    ) -> Self {
        let limiter = ConnectionLimiter::new(limits.connections_max, stats);
        let [draining, closing] = [(); 2].map(|()| CancellationToken::new());
        Self { listener, shared: Arc::new(Shared { credentials, limits, limiter, draining, closing }) }
    }

    /// Serves until `shutdown`, then drains and finishes the requests in flight.
    pub async fn serve(self, router: Router, shutdown: impl Future<Output = ()>) {
        let Self { listener, shared } = self;
        let tasks = TaskTracker::new();
        let drained = async {
            shutdown.await;
            shared.draining.cancel();
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
            // The remaining clients do not read their answers.
            shared.limiter.close_all();
            tasks.wait().await;
        }
    }
}

/// Accepts connections for as long as it is polled.
async fn accept(listener: &TcpListener, shared: &Arc<Shared>, router: &Router, tasks: &TaskTracker) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match shared.limiter.admit() {
                Some(permit) => {
                    let served = connection::serve(stream, peer, permit, router.clone(), Arc::clone(shared));
                    tasks.spawn(served);
                }
                None => tracing::debug!(%peer, "closed: every connection has a request in flight"),
            },
            Err(error) if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) => {
            }
            Err(error) => {
                tracing::warn!(%error, "no connection can be accepted; trying again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
