//! The work queue: de-duplicating, one turn in flight per key, with timers and a backoff per key
//! (client-go's rate-limiting work queue without its global token bucket).

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Key;

/// Delay after the first failure of a key (client-go's `ItemExponentialFailureRateLimiter`).
pub const RETRY_BACKOFF: Duration = Duration::from_millis(5);
/// Longest delay. Upstream's limiter goes up to 1,000 s, because its resync adds every key anyway each 15 s;
/// here nothing else brings a failing key back, so an outage that ends must be noticed within minutes.
pub const RETRY_BACKOFF_MAX: Duration = Duration::from_secs(300);

/// What a timer of a key is for: each key has at most one of each, and setting one replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The last turn failed.
    Retry,
    /// The last decision asked for another after a while.
    Requeue,
    /// An operation may start again.
    Operation,
}

/// The queue. Keys are added by watches, wake-ups and timers, and taken by the one loop that starts turns.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Keys to be taken, in order; none of them has a turn in flight.
    ready: VecDeque<Key>,
    queued: HashSet<Key>,
    in_flight: HashSet<Key>,
    /// Keys added while their turn was in flight: they get another one.
    again: HashSet<Key>,
    due: BTreeSet<(Instant, Key, Timer)>,
    timers: HashMap<(Key, Timer), Instant>,
    failures: HashMap<Key, u32>,
}

impl Queue {
    /// Adds a key, unless it waits already.
    pub(crate) fn add(&self, key: Key) {
        self.state().add(key);
        self.changed.notify_one();
    }

    /// Adds keys.
    pub(crate) fn add_all(&self, keys: impl IntoIterator<Item = Key>) {
        let mut state = self.state();
        keys.into_iter().for_each(|key| state.add(key));
        drop(state);
        self.changed.notify_one();
    }

    /// Adds a key after a delay; an earlier timer of the same purpose is replaced.
    pub(crate) fn add_after(&self, key: Key, timer: Timer, delay: Duration) {
        self.state().set(key, timer, Instant::now() + delay);
        self.changed.notify_one();
    }

    /// Takes the next key, waiting for one; [`Queue::succeeded`] or [`Queue::failed`] must follow.
    ///
    /// Meant for one caller: a second one could sleep through a notification.
    pub(crate) async fn next(&self) -> Key {
        loop {
            let due = {
                let mut state = self.state();
                state.fire(Instant::now());
                if let Some(key) = state.take() {
                    return key;
                }
                state.due.first().map(|(at, ..)| *at)
            };
            match due {
                None => self.changed.notified().await,
                // A notification means that there may be an earlier timer, a timeout that this one is due.
                Some(due) => drop(tokio::time::timeout_at(due, self.changed.notified()).await),
            }
        }
    }

    /// Ends the turn of a key: its failures are forgotten.
    pub(crate) fn succeeded(&self, key: &Key, again_after: Option<Duration>) {
        let mut state = self.state();
        state.failures.remove(key);
        state.clear(key, Timer::Retry);
        state.clear(key, Timer::Requeue);
        if let Some(delay) = again_after {
            state.set(key.clone(), Timer::Requeue, Instant::now() + delay);
        }
        state.finish(key);
        drop(state);
        self.changed.notify_one();
    }

    /// Ends the turn of a key that is to be tried again: after its backoff, and not before `at_least`.
    pub(crate) fn failed(&self, key: &Key, at_least: Option<Duration>) -> Duration {
        let mut state = self.state();
        let failures = state.failures.entry(key.clone()).or_default();
        let backoff = RETRY_BACKOFF.saturating_mul(1 << (*failures).min(31)).min(RETRY_BACKOFF_MAX);
        *failures = failures.saturating_add(1);
        let delay = backoff.max(at_least.unwrap_or_default());
        state.set(key.clone(), Timer::Retry, Instant::now() + delay);
        state.finish(key);
        drop(state);
        self.changed.notify_one();
        delay
    }

    /// How many keys wait to be taken.
    pub(crate) fn len(&self) -> usize {
        self.state().ready.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, key: Key) {
        if self.in_flight.contains(&key) {
            self.again.insert(key);
        } else if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn take(&mut self) -> Option<Key> {
        let key = self.ready.pop_front()?;
        self.queued.remove(&key);
        self.in_flight.insert(key.clone());
        Some(key)
    }

    fn finish(&mut self, key: &Key) {
        self.in_flight.remove(key);
        if self.again.remove(key) {
            self.add(key.clone());
        }
    }

    fn set(&mut self, key: Key, timer: Timer, at: Instant) {
        if let Some(old) = self.timers.insert((key.clone(), timer), at) {
            self.due.remove(&(old, key.clone(), timer));
        }
        self.due.insert((at, key, timer));
    }

    fn clear(&mut self, key: &Key, timer: Timer) {
        if let Some(old) = self.timers.remove(&(key.clone(), timer)) {
            self.due.remove(&(old, key.clone(), timer));
        }
    }

    fn fire(&mut self, now: Instant) {
        while self.due.first().is_some_and(|(at, ..)| *at <= now) {
            if let Some((_, key, timer)) = self.due.pop_first() {
                self.timers.remove(&(key.clone(), timer));
                self.add(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::Volume(name.into())
    }

    async fn idle(queue: &Queue) -> bool {
        tokio::time::timeout(Duration::ZERO, queue.next()).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_once_and_has_one_turn_in_flight() {
        let queue = Queue::default();
        queue.add_all([key("a"), key("b"), key("a")]);
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.next().await, key("a"));
        queue.add(key("a"));
        assert_eq!(queue.next().await, key("b"));
        assert!(idle(&queue).await);
        queue.succeeded(&key("a"), None);
        assert_eq!(queue.next().await, key("a"));
        queue.succeeded(&key("a"), None);
        assert!(idle(&queue).await);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_up_to_the_most_and_success_forgets_them() {
        let queue = Queue::default();
        queue.add(key("a"));
        let mut expected = RETRY_BACKOFF;
        for _ in 0..40 {
            let taken = queue.next().await;
            let before = Instant::now();
            assert_eq!(queue.failed(&taken, None), expected);
            assert_eq!(queue.next().await, taken);
            assert!(Instant::now() - before >= expected);
            queue.add(taken.clone());
            queue.state().finish(&taken);
            expected = (expected * 2).min(RETRY_BACKOFF_MAX);
        }
        let taken = queue.next().await;
        queue.succeeded(&taken, None);
        assert!(idle(&queue).await);
        queue.add(taken);
        let taken = queue.next().await;
        assert_eq!(queue.failed(&taken, Some(Duration::from_secs(7))), Duration::from_secs(7));
        assert_eq!(queue.failed(&taken, None), RETRY_BACKOFF * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_is_replaced_by_one_of_the_same_purpose_only() {
        let queue = Queue::default();
        let start = Instant::now();
        queue.add_after(key("a"), Timer::Requeue, Duration::from_secs(1));
        queue.add_after(key("a"), Timer::Requeue, Duration::from_secs(5));
        queue.add_after(key("a"), Timer::Operation, Duration::from_secs(3));
        for seconds in [3, 5] {
            let taken = queue.next().await;
            assert_eq!((Instant::now() - start).as_secs(), seconds);
            queue.state().finish(&taken);
        }
        assert!(queue.state().timers.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn success_clears_the_retry_but_not_the_operation() {
        let queue = Queue::default();
        queue.add(key("a"));
        let taken = queue.next().await;
        queue.add_after(key("a"), Timer::Operation, Duration::from_secs(3));
        queue.failed(&taken, Some(Duration::from_secs(1)));
        queue.add(key("a"));
        let taken = queue.next().await;
        queue.succeeded(&taken, Some(Duration::from_secs(9)));
        let start = Instant::now();
        let taken = queue.next().await;
        assert_eq!((Instant::now() - start).as_secs(), 3);
        queue.succeeded(&taken, None);
        assert!(queue.state().due.is_empty());
    }
}
