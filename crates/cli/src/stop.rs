//! The signals that end `serve` and `playground`.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGHUP.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Stop {
    /// Handles the signals from now on.
    ///
    /// # Errors
    ///
    /// A handler cannot be installed.
    pub(crate) fn new() -> Result<Self> {
        let handle = |kind| signal(kind).context("signals cannot be handled");
        Ok(Self {
            interrupt: handle(SignalKind::interrupt())?,
            terminate: handle(SignalKind::terminate())?,
            hangup: handle(SignalKind::hangup())?,
        })
    }

    /// Waits for the first signal.
    pub(crate) async fn signalled(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
