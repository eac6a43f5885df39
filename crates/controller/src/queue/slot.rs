//! The right to decide a key, one of each.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::{InFlight, Queue};
use crate::Key;

/// The right to decide a key: there is one of each key, so decisions about one object follow each other.
/// Given back when this is dropped, wherever the future that holds it is dropped.
///
/// A sync holds it for its turn; an operation while it decides and writes. The sync of a claim that writes a
/// volume holds that one's too. A turn that has a volume's slot waits for no other slot, so no deadlock is
/// possible.
pub(crate) struct Slot {
    queue: Arc<Queue>,
    key: Key,
    /// Whether it is lent to others at the moment.
    lent: bool,
}

impl Queue {
    /// Takes the slot of a key, waiting until whoever has it gives it back. It comes before the turns that
    /// the key is queued for, and after who waited earlier.
    pub(crate) async fn slot(self: &Arc<Self>, key: &Key) -> Slot {
        let handed_over = match self.state().in_flight.entry(key.clone()) {
            Entry::Vacant(free) => {
                free.insert(InFlight::default());
                return Slot::new(self, key.clone());
            }
            Entry::Occupied(mut taken) => {
                let (sender, receiver) = oneshot::channel();
                taken.get_mut().waiting.push_back(sender);
                receiver
            }
        };
        handed_over.await.expect("a slot is handed to all that wait before its key is forgotten")
    }
}

impl Slot {
    pub(super) fn new(queue: &Arc<Queue>, key: Key) -> Self {
        Self { queue: Arc::clone(queue), key, lent: false }
    }

    /// The key that may be decided.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Whether somebody waits for the slot. Then the key gets another turn after them, and this one need
    /// not be taken.
    pub(crate) fn gives_way(&self) -> bool {
        let mut state = self.queue.state();
        let Some(in_flight) = state.in_flight.get_mut(&self.key) else { return false };
        in_flight.waiting.retain(|waiting| !waiting.is_closed());
        let gives_way = !in_flight.waiting.is_empty();
        in_flight.again |= gives_way;
        gives_way
    }

    /// Lets others decide the key while `work` goes on, which is no decision and may take long.
    pub(crate) async fn lend_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        self.give_back();
        let result = work.await;
        *self = self.queue.slot(&self.key).await;
        result
    }

    fn give_back(&mut self) {
        if self.lent {
            return;
        }
        self.lent = true;
        let mut state = self.queue.state();
        let Some(in_flight) = state.in_flight.get_mut(&self.key) else { return };
        while let Some(next) = in_flight.waiting.pop_front() {
            let Err(mut refused) = next.send(Self::new(&self.queue, self.key.clone())) else { return };
            // Whoever waited has given up; this slot is not theirs to give back.
            refused.lent = true;
        }
        let Some(InFlight { again, offered, .. }) = state.in_flight.remove(&self.key) else { return };
        if again || (offered && !state.backs_off(&self.key)) {
            state.add(self.key.clone());
        }
        drop(state);
        self.queue.changed.notify_one();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.give_back();
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
    fn turn(queue: &Arc<Queue>) -> Option<Slot> {
        queue.next().now_or_never()
    }

    /// Somebody who waits for the slot, in line.
    fn waiter(queue: &Arc<Queue>) -> BoxFuture<'_, Slot> {
        let mut waiter = async { queue.slot(&key()).await }.boxed();
        assert!((&mut waiter).now_or_never().is_none(), "the slot is free");
        waiter
    }

    fn is_free(queue: &Arc<Queue>) -> bool {
        queue.slot(&key()).now_or_never().is_some()
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
        drop(turn(&queue).expect("it was added while the slot was taken"));
        assert!(turn(&queue).is_none() && is_free(&queue));
    }

    #[tokio::test]
    async fn a_key_that_waits_for_its_turn_gets_it_though_its_slot_is_taken_meanwhile() {
        let queue = queue();
        queue.add(key());
        let operation = queue.slot(&key()).await;
        assert!(turn(&queue).is_none());
        drop(operation);
        drop(turn(&queue).expect("it was queued before the slot was taken"));
        assert!(turn(&queue).is_none());
    }

    #[tokio::test]
    async fn a_turn_gives_way_to_those_who_wait_and_comes_again() {
        let queue = queue();
        queue.add(key());
        let sync = queue.next().await;
        assert!(!sync.gives_way());
        let gives_up = waiter(&queue);
        drop(gives_up);
        assert!(!sync.gives_way());
        let waits = waiter(&queue);
        assert!(sync.gives_way());
        drop(sync);
        drop(waits.await);
        drop(turn(&queue).expect("it has given way"));
        assert!(turn(&queue).is_none() && is_free(&queue));
    }

    #[tokio::test]
    async fn whoever_gives_up_waiting_takes_no_slot_along() {
        let queue = queue();
        let taken = queue.slot(&key()).await;
        let [before, after, third, last] = std::array::from_fn(|_| waiter(&queue));
        // One goes before the slot is handed over, the next one when it has it and has not looked yet.
        drop(before);
        drop(taken);
        drop(after);
        drop(last);
        queue.add(key());
        drop(third.await);
        drop(turn(&queue).expect("it was added while the slot was taken"));
        assert!(is_free(&queue));
    }

    #[tokio::test]
    async fn a_slot_that_is_lent_is_taken_back_after_whoever_has_it() {
        let queue = queue();
        let mut operation = queue.slot(&key()).await;
        queue.add(key());
        let work = tokio::sync::Notify::new();
        let mut lent = Box::pin(operation.lend_during(work.notified()));
        assert!((&mut lent).now_or_never().is_none());
        let sync = turn(&queue).expect("it was added before, and the slot is lent");
        work.notify_one();
        assert!((&mut lent).now_or_never().is_none());
        drop(sync);
        lent.await;
        assert!(!is_free(&queue));

        // Dropped while it is lent, it is not given back twice.
        assert!(operation.lend_during(std::future::pending::<()>()).now_or_never().is_none());
        let other = queue.slot(&key()).await;
        drop(operation);
        assert!(!is_free(&queue));
        drop(other);
        assert!(is_free(&queue));
    }
}
