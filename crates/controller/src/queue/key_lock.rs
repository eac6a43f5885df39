//! The right to decide a key; one task has it at a time.

use bindery_core::Key;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::{InFlight, Queue};

/// The right to decide a key. Each key has one, so decisions about one object follow each other. Dropping it
/// releases the key, also when the future that holds it is dropped.
///
/// A sync holds it for its turn, an operation while it decides and writes. The sync of a claim that writes a
/// volume also holds the volume's lock. A turn that has a volume's lock waits for no other lock, so there is
/// no deadlock.
pub(crate) struct KeyLock {
    queue: Arc<Queue>,
    key: Key,
    /// Whether the key is released at the moment.
    is_released: bool,
}

impl Queue {
    /// Waits until the lock of a key is free, and takes it. Waiting callers get it in order, and before
    /// queued turns of the key.
    pub(crate) async fn lock(self: &Arc<Self>, key: &Key) -> KeyLock {
        let handed_over = match self.state.lock().in_flight.entry(key.clone()) {
            Entry::Vacant(free) => {
                free.insert(InFlight::default());
                return KeyLock::new(self, key.clone());
            }
            Entry::Occupied(mut taken) => {
                let (sender, receiver) = oneshot::channel();
                taken.get_mut().waiting.push_back(sender);
                receiver
            }
        };
        handed_over.await.expect("a lock is handed to all that wait before its key is forgotten")
    }
}

impl KeyLock {
    pub(super) fn new(queue: &Arc<Queue>, key: Key) -> Self {
        Self { queue: Arc::clone(queue), key, is_released: false }
    }

    /// The key that may be decided.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Releases the key before its turn began, and puts it behind the keys that were deferred before.
    pub(crate) fn defer(self) {
        let mut state = self.queue.state.lock();
        if !state.closed && state.queued.insert(self.key.clone()) {
            state.deferred.push_back(self.key.clone());
        }
    }

    /// Whether a caller waits for the lock. Then the key gets another turn afterwards, so this one can be
    /// skipped.
    pub(crate) fn yields(&self) -> bool {
        let mut state = self.queue.state.lock();
        let Some(in_flight) = state.in_flight.get_mut(&self.key) else { return false };
        in_flight.waiting.retain(|waiting| !waiting.is_closed());
        let yields = !in_flight.waiting.is_empty();
        in_flight.again |= yields;
        yields
    }

    /// Releases the key during `work`, which is not a decision and may take long.
    pub(crate) async fn release_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        self.release();
        let result = work.await;
        *self = self.queue.lock(&self.key).await;
        result
    }

    fn release(&mut self) {
        if self.is_released {
            return;
        }
        self.is_released = true;
        let mut state = self.queue.state.lock();
        let Some(in_flight) = state.in_flight.get_mut(&self.key) else { return };
        while let Some(next) = in_flight.waiting.pop_front() {
            let Err(mut refused) = next.send(Self::new(&self.queue, self.key.clone())) else { return };
            // The caller that waited has given up; dropping its lock must not release the key.
            refused.is_released = true;
        }
        let Some(InFlight { again, offered, .. }) = state.in_flight.remove(&self.key) else { return };
        if again || (offered && !state.backs_off(&self.key)) {
            state.add(self.key.clone());
        }
        drop(state);
        self.queue.changed.notify_one();
    }
}

impl Drop for KeyLock {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {

    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    use super::*;

    fn key() -> Key {
        Key::Volume("a".into())
    }

    fn queue() -> Arc<Queue> {
        Arc::default()
    }

    /// The next turn, if there is one now.
    fn turn(queue: &Arc<Queue>) -> Option<KeyLock> {
        queue.next().now_or_never()
    }

    /// A caller that waits for the lock.
    fn waiter(queue: &Arc<Queue>) -> BoxFuture<'_, KeyLock> {
        let mut waiter = async { queue.lock(&key()).await }.boxed();
        assert!((&mut waiter).now_or_never().is_none(), "the lock is free");
        waiter
    }

    fn is_free(queue: &Arc<Queue>) -> bool {
        queue.lock(&key()).now_or_never().is_some()
    }

    #[tokio::test]
    async fn a_key_is_handed_to_those_who_wait_in_order_and_then_to_its_turn() {
        let queue = queue();
        queue.add(key());
        let sync = queue.next().await;
        let (first, mut second) = (waiter(&queue), waiter(&queue));
        queue.add(key());
        drop(sync);
        assert!(turn(&queue).is_none() && (&mut second).now_or_never().is_none());
        drop(first.await);
        assert!(turn(&queue).is_none());
        drop(second.await);
        drop(turn(&queue).expect("it was added while the lock was taken"));
        assert!(turn(&queue).is_none() && is_free(&queue));
    }

    #[tokio::test]
    async fn a_key_keeps_its_turn_while_its_lock_is_taken() {
        let queue = queue();
        queue.add(key());
        let operation = queue.lock(&key()).await;
        assert!(turn(&queue).is_none());
        drop(operation);
        drop(turn(&queue).expect("it was queued before the lock was taken"));
        assert!(turn(&queue).is_none());
    }

    #[tokio::test]
    async fn a_turn_yields_to_waiting_locks_and_comes_again() {
        let queue = queue();
        queue.add(key());
        let sync = queue.next().await;
        assert!(!sync.yields());
        let gives_up = waiter(&queue);
        drop(gives_up);
        assert!(!sync.yields());
        let waits = waiter(&queue);
        assert!(sync.yields());
        drop(sync);
        drop(waits.await);
        drop(turn(&queue).expect("it has given way"));
        assert!(turn(&queue).is_none() && is_free(&queue));
    }

    #[tokio::test]
    async fn a_waiter_that_gives_up_keeps_no_lock() {
        let queue = queue();
        let taken = queue.lock(&key()).await;
        let [before, after, third, last] = std::array::from_fn(|_| waiter(&queue));
        // One caller gives up before it gets the lock, the next one after it got the lock and before it was
        // polled.
        drop(before);
        drop(taken);
        drop(after);
        drop(last);
        queue.add(key());
        drop(third.await);
        drop(turn(&queue).expect("it was added while the lock was taken"));
        assert!(is_free(&queue));
    }

    #[tokio::test]
    async fn a_released_lock_is_taken_back_after_its_next_holder() {
        let queue = queue();
        let mut operation = queue.lock(&key()).await;
        queue.add(key());
        let work = tokio::sync::Notify::new();
        let mut work_done = Box::pin(operation.release_during(work.notified()));
        assert!((&mut work_done).now_or_never().is_none());
        let sync = turn(&queue).expect("it was added before, and the lock is released");
        work.notify_one();
        assert!((&mut work_done).now_or_never().is_none());
        drop(sync);
        work_done.await;
        assert!(!is_free(&queue));

        // If it is dropped while released, it is not released twice.
        assert!(operation.release_during(std::future::pending::<()>()).now_or_never().is_none());
        let other = queue.lock(&key()).await;
        drop(operation);
        assert!(!is_free(&queue));
        drop(other);
        assert!(is_free(&queue));
    }
}
