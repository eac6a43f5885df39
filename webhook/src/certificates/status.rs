//! The status of a replica's certificate, for metrics.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use super::identity::Identity;

/// The certificate that a replica shows, and what happened to it.
#[derive(Debug, Default)]
pub struct CertificateStatus {
    /// Seconds since 1970; 0 before one is shown.
    expires: AtomicI64,
    changes: AtomicU64,
    failures: AtomicU64,
    /// 0 unknown, 1 trusted, 2 not trusted.
    trusted: AtomicU8,
}

impl CertificateStatus {
    /// When the shown certificate expires, in seconds since 1970; `None` before one is shown.
    pub fn expires(&self) -> Option<i64> {
        Some(self.expires.load(Ordering::Relaxed)).filter(|expires| *expires != 0)
    }

    /// How often another certificate was taken into use.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// How often certificates could not be read, made, stored or made trusted; the one in use stayed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Whether the webhook configuration trusts the shown certificate; `None` if Bindery does not manage it.
    pub fn trusted(&self) -> Option<bool> {
        match self.trusted.load(Ordering::Relaxed) {
            0 => None,
            state => Some(state == 1),
        }
    }

    /// Records that this certificate is shown from now on.
    pub fn show(&self, identity: &Identity) {
        let since_1970 = identity.validity().not_after.duration_since(UNIX_EPOCH).unwrap_or_default();
        let expires = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
        if self.expires.swap(expires, Ordering::Relaxed) != 0 {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn set_trusted(&self, trusted: bool) {
        self.trusted.store(if trusted { 1 } else { 2 }, Ordering::Relaxed);
    }
}
