//! The rate limit of all requests for events.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time between two requests: 20 a second, as kube-controller-manager (`--kube-api-qps`).
const INTERVAL: Duration = Duration::from_millis(50);
/// Requests that may be sent at once after a pause, as kube-controller-manager (`--kube-api-burst`).
const BURST: u32 = 30;

/// A token bucket that is full at the start.
pub(crate) struct Rate {
    /// When the bucket will be full.
    full: Mutex<Instant>,
}

impl Default for Rate {
    fn default() -> Self {
        Self { full: Mutex::new(Instant::now()) }
    }
}

impl Rate {
    /// Waits until a request may be sent.
    pub(super) async fn ready(&self) {
        let full = *self.full.lock();
        wait(full).await;
    }

    /// Counts a request, and waits until it may be sent.
    pub(super) async fn take(&self) {
        let full = {
            let mut full = self.full.lock();
            let before = *full;
            *full = before.max(Instant::now()) + INTERVAL;
            before
        };
        wait(full).await;
    }
}

/// Waits until a bucket that will be full at this time has a token.
async fn wait(full: Instant) {
    let spent = full.saturating_duration_since(Instant::now());
    if let Some(wait) = spent.checked_sub(INTERVAL * (BURST - 1)) {
        tokio::time::sleep(wait).await;
    }
}
