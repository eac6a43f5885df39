//! The signals that end `serve` and `playground`.

use anyhow::{Context as _, Result};
use futures::future::select_all;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGHUP.
pub(crate) struct StopSignals(Vec<Signal>);

impl StopSignals {
    /// Handles the signals from now on.
    pub(crate) fn new() -> Result<Self> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let signals = kinds.into_iter().map(signal).collect::<std::io::Result<_>>();
        signals.map(Self).context("signals cannot be handled")
    }

    /// Waits for the first signal.
    pub(crate) async fn signalled(&mut self) {
        select_all(self.0.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
    }
}
