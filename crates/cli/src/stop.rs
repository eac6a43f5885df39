//! The signals that end a program which runs until it is told to stop.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals, heard from the moment this is made.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal was closed.
    hangup: Signal,
}

impl Stop {
    /// Hears the signals from now on.
    ///
    /// # Errors
    ///
    /// They cannot be heard.
    pub(crate) fn new() -> Result<Self> {
        let hear = |kind| signal(kind).context("signals cannot be heard");
        Ok(Self {
            interrupt: hear(SignalKind::interrupt())?,
            terminate: hear(SignalKind::terminate())?,
            hangup: hear(SignalKind::hangup())?,
        })
    }

    /// Ends at the first of them.
    pub(crate) async fn signalled(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
