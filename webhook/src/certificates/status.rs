//! The status of a replica's certificate, for metrics.

use std::time::UNIX_EPOCH;

use parking_lot::Mutex;

use super::identity::Identity;

/// The certificate that a replica shows, and what happened to it.
#[derive(Debug, Default)]
pub struct CertificateStatus(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    expires: Option<i64>,
    changes: u64,
    failures: u64,
    trusted: Option<bool>,
}

impl CertificateStatus {
    /// When the shown certificate expires, in seconds since 1970; `None` before one is shown.
    pub fn expires(&self) -> Option<i64> {
        self.0.lock().expires
    }

    /// How often another certificate was taken into use.
    pub fn changes(&self) -> u64 {
        self.0.lock().changes
    }

    /// How often certificates could not be read, made, stored or made trusted; the one in use stayed.
    pub fn failures(&self) -> u64 {
        self.0.lock().failures
    }

    /// Whether the webhook configuration trusts the shown certificate; `None` if Bindery does not manage it.
    pub fn trusted(&self) -> Option<bool> {
        self.0.lock().trusted
    }

    /// Records that this certificate is shown from now on.
    pub fn show(&self, identity: &Identity) {
        let since_1970 = identity.validity().not_after.duration_since(UNIX_EPOCH).unwrap_or_default();
        let expires = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
        let mut state = self.0.lock();
        if state.expires.replace(expires).is_some() {
            state.changes += 1;
        }
    }

    pub(super) fn count_failure(&self) {
        self.0.lock().failures += 1;
    }

    pub(super) fn set_trusted(&self, trusted: bool) {
        self.0.lock().trusted = Some(trusted);
    }
}
