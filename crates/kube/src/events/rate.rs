//! The rate limit of all requests for events.

use std::time::Duration;

use tokio::time::Instant;

/// Time between two requests: 20 a second, as kube-controller-manager (`--kube-api-qps`).
const INTERVAL: Duration = Duration::from_millis(50);
/// Requests that may be sent at once after a pause, as kube-controller-manager (`--kube-api-burst`).
const BURST: u32 = 30;

/// A token bucket that is full at the start.
pub(super) struct Rate {
    /// When the bucket will be full.
    full: Instant,
}

impl Rate {
    pub(super) fn new() -> Self {
        Self { full: Instant::now() }
    }

    /// Waits until a request may be sent.
    pub(super) async fn ready(&self) {
        let spent = self.full.saturating_duration_since(Instant::now());
        if let Some(wait) = spent.checked_sub(INTERVAL * (BURST - 1)) {
            tokio::time::sleep(wait).await;
        }
    }

    /// Waits until a request may be sent, and counts it.
    pub(super) async fn take(&mut self) {
        self.ready().await;
        self.full = self.full.max(Instant::now()) + INTERVAL;
    }
}
