//! Objects whose syncs keep failing for a reason that no event of a decision tells.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash};
use std::time::Duration;

use bindery_core::Key;
use parking_lot::Mutex;
use tokio::time::Instant;

/// What the user was last told of each, as a hash, and when.
#[derive(Default)]
pub(super) struct Stuck(Mutex<HashMap<Key, (u64, Instant)>>);

impl Stuck {
    /// Whether the user is to be told this now: it is not what was told last, or so long after that.
    pub(super) fn is_due(&self, key: &Key, this: impl Hash, refresh: Duration) -> bool {
        let mut told = self.0.lock();
        let this = told.hasher().hash_one(this);
        if told.get(key).is_some_and(|(last, at)| *last == this && at.elapsed() < refresh) {
            return false;
        }
        told.insert(key.clone(), (this, Instant::now()));
        true
    }

    /// A sync of the object has succeeded.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    /// This replica does not lead any more.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}
