//! Gives turns to keys: to those whose last decision depends on a change, and to claims that wait for a free
//! volume, one after the other until one takes it.

use std::sync::Arc;

use bindery_core::{ClaimKey, Key, Volume};
use bindery_store::{Change, Dispatcher, Offer, Store, Subscriptions};

use crate::queue::Queue;

/// A subscriber: the last sync of an object, its labels, or the last step of its operation. Each asks other
/// facts, so the subscription of one must not replace another's.
pub(crate) type Subscriber = (Key, Role);

/// The decision of an object that depends on facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Its last sync.
    Sync,
    /// The last choice of the volumes that have the label of a claim.
    Label,
    /// The last step of its operation.
    Operation,
}

/// The queue, and the subscriptions whose keys it gives turns to.
pub(crate) struct Turns {
    store: Arc<Store>,
    queue: Arc<Queue>,
    pub(crate) subscriptions: Subscriptions<Subscriber>,
}

impl Turns {
    pub(super) fn new(store: Arc<Store>, queue: Arc<Queue>) -> Self {
        Self { store, queue, subscriptions: Subscriptions::new() }
    }

    /// Queues the keys whose last decision asked for what has changed.
    pub(super) fn wake(&self, change: &Change) {
        self.wake_except(None, change, Offer::New);
    }

    /// Wakes the keys that waited for the end of a claim's reservation, but not the claim itself: it has
    /// bound the volume, or is retried after its backoff.
    pub(crate) fn unreserved(&self, change: &Change, by: &ClaimKey) {
        self.wake_except(Some(by), change, Offer::Returned);
    }

    /// A sync has ended, with or without a decision. If the volume that was offered to its object is still
    /// free, it is offered to the next claim.
    pub(crate) fn pass_on(&self, subscriber: &Subscriber) {
        self.subscriptions.pass_on(subscriber, &TurnsExcept { turns: self, claim: None });
    }

    fn wake_except(&self, claim: Option<&ClaimKey>, change: &Change, offer: Offer) {
        let woken = self.subscriptions.wake(change, offer, &TurnsExcept { turns: self, claim }, is_once);
        self.queue.add_all(woken.into_iter().map(|(key, _)| key));
    }
}

/// Gives turns to all keys but that of one claim.
struct TurnsExcept<'a> {
    turns: &'a Turns,
    claim: Option<&'a ClaimKey>,
}

impl Dispatcher<Subscriber> for TurnsExcept<'_> {
    fn free(&self, volume: &str) -> Option<Arc<Volume>> {
        self.turns.store.free_volume(volume)
    }

    fn ask(&self, (key, role): &Subscriber, offer: Offer) -> bool {
        if matches!((key, self.claim), (Key::Claim(key), Some(except)) if key == except) {
            return false;
        }
        // No offer goes to an operation, because it does not report that it has decided.
        self.turns.queue.offer(key, offer) && *role != Role::Operation
    }
}

/// Whether the subscription of a queued subscriber can be dropped. Its turn subscribes it anew, and a failed
/// turn is followed by another. An operation keeps its subscription, because the turn of its object need not
/// start it again.
fn is_once((_, role): &Subscriber) -> bool {
    *role != Role::Operation
}
