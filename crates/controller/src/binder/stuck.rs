//! Objects whose syncs keep failing for a reason that no event of a decision tells.

use std::collections::HashMap;
use std::time::Duration;

use bindery_core::Key;
use parking_lot::Mutex;
use tokio::time::Instant;

/// When the user was last told of each.
#[derive(Default)]
pub(super) struct Stuck(Mutex<HashMap<Key, Instant>>);

impl Stuck {
    /// Whether the user is to be told now: for the first time, or so long after the last one.
    pub(super) fn is_due(&self, key: &Key, refresh: Duration) -> bool {
        let mut told = self.0.lock();
        if told.get(key).is_some_and(|last| last.elapsed() < refresh) {
            return false;
        }
        told.insert(key.clone(), Instant::now());
        true
    }

    /// A sync of the object has succeeded.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    /// This replica leads no more.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}
