//! Lets siblings be decided one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use bindery_core::Siblings;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// A lock for each set of siblings, from a decision about one to its reservation. Without it, each of a
/// thousand siblings would be decided again whenever another one reserves a volume.
#[derive(Default)]
pub(super) struct SiblingLocks {
    locks: Mutex<BTreeMap<Siblings, Weak<tokio::sync::Mutex<()>>>>,
}

impl SiblingLocks {
    /// Waits for the locks and takes them in ascending order, so that two tasks cannot wait for each other.
    pub(super) async fn lock(&self, all: BTreeSet<Siblings>) -> Vec<OwnedMutexGuard<()>> {
        let mut taken = Vec::new();
        for siblings in all {
            taken.push(self.lock_of(siblings).lock_owned().await);
        }
        taken
    }

    fn lock_of(&self, siblings: Siblings) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock();
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = locks.get(&siblings).and_then(Weak::upgrade).unwrap_or_default();
        locks.insert(siblings, Arc::downgrade(&lock));
        lock
    }
}
