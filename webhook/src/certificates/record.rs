//! What is counted of certificates.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::identity::Identity;

/// What a replica tells of the certificate that it shows.
#[derive(Debug, Default)]
pub struct CertificateRecord {
    /// Seconds since 1970; 0 where none is shown.
    expires: AtomicI64,
    changes: AtomicU64,
    failures: AtomicU64,
    trusted: AtomicU8,
}

impl CertificateRecord {
    /// When the certificate that is shown expires, in seconds since 1970; `None` where none is shown.
    pub fn expires(&self) -> Option<i64> {
        Some(self.expires.load(Ordering::Relaxed)).filter(|expires| *expires != 0)
    }

    /// How often another certificate was taken into use.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// How often certificates could not be read, made, kept or made known; what was in use stayed so.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Whether the webhook configuration trusts the certificate that is shown; `None` where that is somebody
    /// else's duty.
    pub fn trusted(&self) -> Option<bool> {
        match self.trusted.load(Ordering::Relaxed) {
            0 => None,
            told => Some(told == 1),
        }
    }

    /// This one is shown from now on.
    pub fn show(&self, identity: &Identity) {
        if self.expires.swap(seconds(identity.validity().not_after), Ordering::Relaxed) != 0 {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn fail(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn tell_trusted(&self, trusted: bool) {
        self.trusted.store(if trusted { 1 } else { 2 }, Ordering::Relaxed);
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX)
}
