//! What is counted of who comes.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What came and went.
#[derive(Debug, Default)]
pub struct Traffic {
    connections: AtomicUsize,
    shed: AtomicU64,
    handshake_errors: AtomicU64,
}

impl Traffic {
    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Connections that were closed or turned away because there were too many.
    pub fn shed(&self) -> u64 {
        self.shed.load(Ordering::Relaxed)
    }

    /// Connections on which no handshake came about: in time, with TLS, and with a certificate that is
    /// accepted.
    pub fn handshake_errors(&self) -> u64 {
        self.handshake_errors.load(Ordering::Relaxed)
    }

    pub(super) fn tell_connections(&self, connections: usize) {
        self.connections.store(connections, Ordering::Relaxed);
    }

    pub(super) fn shed_one(&self) {
        self.shed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn fail_handshake(&self) {
        self.handshake_errors.fetch_add(1, Ordering::Relaxed);
    }
}
