//! Keys that are decided again after a new list of volumes.

use std::collections::HashSet;

use bindery_store::Kind;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Key;
use crate::freshness::Freshness;
use crate::queue::Queue;

/// The keys whose decision waits for a list of volumes, because a live read contradicts the cache.
#[derive(Default)]
pub(super) struct AwaitingList {
    keys: Mutex<HashSet<Key>>,
    added: Notify,
}

impl AwaitingList {
    pub(super) fn add(&self, key: Key) {
        self.keys.lock().insert(key);
        self.added.notify_one();
    }

    pub(super) fn clear(&self) {
        self.keys.lock().clear();
    }

    /// Queues the keys whenever a list is complete, for ever.
    pub(super) async fn queue_after_lists(&self, freshness: &Freshness, queue: &Queue) {
        loop {
            self.added.notified().await;
            freshness.until_listed(Kind::Volume).await;
            let keys = std::mem::take(&mut *self.keys.lock());
            queue.add_all(keys);
        }
    }
}
