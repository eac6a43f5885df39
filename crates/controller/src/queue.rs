//! The work queue: de-duplicating, one lock per key, with timers and a backoff per key (client-go's
//! rate-limiting work queue without its global token bucket). Objects from a list go to a second, slower
//! lane, because most of them need no decision: a waiting claim does not queue behind 100,000 bound ones.

mod key_lock;
#[cfg(test)]
mod tests;

use bindery_core::Key;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bindery_store::Offer;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

pub(crate) use self::key_lock::KeyLock;

/// Delay after the first failure of a key (client-go's `ItemExponentialFailureRateLimiter`).
const RETRY_BACKOFF: Duration = Duration::from_millis(5);
/// Longest delay while few keys fail. Upstream's limiter goes up to 1,000 s, but its resync adds every key
/// every 15 s; so a repaired object is retried as soon as in upstream.
pub const RETRY_BACKOFF_MAX: Duration = Duration::from_secs(15);
/// Share of each failing key in the longest delay, if many fail: all failing keys together are retried 20
/// times a second, the default limit of upstream's client.
const RETRY_BACKOFF_EACH: Duration = Duration::from_millis(50);
/// Longest delay however many keys fail, so that the end of an outage is noticed within minutes.
const RETRY_BACKOFF_CROWD_MAX: Duration = Duration::from_secs(300);

/// While both lanes have keys, one of this many turns goes to the slow lane.
const SLOW_TURN: u32 = 4;
/// A lane that has held more keys than this gives its memory back when it is empty.
const KEPT_CAPACITY: usize = 4_096;

/// Where a key waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Its object has changed, or its timer has ended.
    Fast,
    /// A list has brought its object, which seems to need no decision.
    Slow,
}

/// The purpose of a timer. A key has at most one timer for each purpose, and setting it again replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The last turn failed.
    Retry,
    /// The last decision asked for another after a while.
    Requeue,
    /// An operation may start again, or the watch should have reported what one has done.
    Operation,
    /// The event of the last decision has to be recorded again.
    Refresh,
}

/// The queue. Keys are added by watches, wake-ups and timers, and taken by the one loop that starts turns.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
    list_awaited: Notify,
}

#[derive(Default)]
struct State {
    /// No loop takes keys, so none is kept: otherwise a replica that only watches would keep a key for every
    /// object that ever existed.
    closed: bool,
    /// Keys to be taken, in order. A key whose lock is taken meanwhile is passed over.
    ready: VecDeque<Key>,
    queued: HashSet<Key>,
    /// Keys of the slow lane. There may be very many, so nothing else is stored for them while they wait: a
    /// key that is also added to the fast lane may be decided twice.
    slow: VecDeque<Key>,
    /// Keys that were taken and deferred, in order. Each is in `queued` too.
    deferred: VecDeque<Key>,
    /// Turns since the slow lane had one.
    turns: u32,
    in_flight: HashMap<Key, InFlight>,
    due: BTreeSet<(Instant, Key, Timer)>,
    timers: HashMap<(Key, Timer), Instant>,
    failures: HashMap<Key, u32>,
    /// Keys whose last turn ended because a list of volumes is needed.
    awaiting_list: BTreeSet<Key>,
}

/// A key whose lock is taken, with what happens when the lock is released.
#[derive(Default)]
struct InFlight {
    /// The callers that wait for the lock, in order, including those that have given up.
    waiting: VecDeque<oneshot::Sender<KeyLock>>,
    /// The key was added meanwhile: it gets a turn after those.
    again: bool,
    /// A volume was offered meanwhile: it gets a turn, unless the last one has failed.
    offered: bool,
}

impl Queue {
    /// Keeps keys from now on.
    pub(crate) fn open(&self) {
        self.state.lock().closed = false;
    }

    /// Drops all keys and timers, and accepts none from now on.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        let in_flight = std::mem::take(&mut state.in_flight);
        *state = State { closed: true, in_flight, ..State::default() };
    }

    /// Adds a key, unless it waits already.
    pub(crate) fn add(&self, key: Key) {
        self.state.lock().add(key);
        self.changed.notify_one();
    }

    /// Adds keys, each to a lane of its own, unless they wait in it already. In one call each key comes once.
    pub(crate) fn add_all_to(&self, keys: impl IntoIterator<Item = (Key, Lane)>) {
        let mut state = self.state.lock();
        // Lists and swaps may come faster than their keys are decided.
        let mut waiting: Option<HashSet<Key>> = None;
        for (key, lane) in keys {
            let slow = || state.slow.iter().cloned().collect();
            if lane == Lane::Fast || !waiting.get_or_insert_with(slow).contains(&key) {
                state.add_to(key, lane);
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Adds keys.
    pub(crate) fn add_all(&self, keys: impl IntoIterator<Item = Key>) {
        self.add_all_to(keys.into_iter().map(|key| (key, Lane::Fast)));
    }

    /// Adds a key that waits for a volume when a volume is offered to it. Returns whether its next turn
    /// answers the offer; if not, another key can have the volume first:
    ///
    /// - A key in flight gets another turn if the current one succeeds.
    /// - A key that backs off or awaits a list keeps waiting if the volume was returned: otherwise claims
    ///   whose writes fail would pass the same volume to each other as fast as the writes fail.
    pub(crate) fn offer(&self, key: &Key, offer: Offer) -> bool {
        let mut state = self.state.lock();
        if let Some(in_flight) = state.in_flight.get_mut(key) {
            in_flight.offered = true;
            return false;
        }
        if state.closed || (offer == Offer::Returned && state.backs_off(key)) {
            return false;
        }
        state.add(key.clone());
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Adds a key after a delay; an earlier timer of the same purpose is replaced.
    pub(crate) fn add_after(&self, key: Key, timer: Timer, delay: Duration) {
        self.state.lock().set(key, timer, Instant::now() + delay);
        self.changed.notify_one();
    }

    /// Waits for the next key and takes its lock. Report the end of its turn by [`Queue::succeeded`] or
    /// [`Queue::failed`] before dropping the lock. One caller at a time: a second one could miss a
    /// notification.
    pub(crate) async fn next(self: &Arc<Self>) -> KeyLock {
        loop {
            let due = {
                let mut state = self.state.lock();
                state.fire(Instant::now());
                if let Some(key) = state.take() {
                    return KeyLock::new(self, key);
                }
                state.due.first().map(|(at, ..)| *at)
            };
            match due {
                None => self.changed.notified().await,
                // A notification may mean an earlier timer; a timeout means that this timer is due.
                Some(due) => drop(tokio::time::timeout_at(due, self.changed.notified()).await),
            }
        }
    }

    /// Whether keys are deferred.
    pub(crate) fn has_deferred(&self) -> bool {
        !self.state.lock().deferred.is_empty()
    }

    /// Takes the lock of the key that was deferred the longest time ago. `None` if no key is deferred, or if
    /// the lock is taken; then the key gets another turn when it is released.
    pub(crate) fn next_deferred(self: &Arc<Self>) -> Option<KeyLock> {
        let mut state = self.state.lock();
        let key = state.deferred.pop_front()?;
        state.queued.remove(&key);
        state.give_back();
        state.begin(key).map(|key| KeyLock::new(self, key))
    }

    /// A turn of the key has succeeded: its failures are forgotten.
    pub(crate) fn succeeded(&self, key: &Key, again_after: Option<Duration>) {
        self.state.lock().failures.remove(key);
        self.postponed(key, again_after);
    }

    /// Adds a key after a delay, so that the event of its last turn is recorded again. `None`: it recorded no
    /// event.
    pub(crate) fn refresh_after(&self, key: &Key, delay: Option<Duration>) {
        match delay {
            Some(delay) => self.add_after(key.clone(), Timer::Refresh, delay),
            None => self.state.lock().clear(key, Timer::Refresh),
        }
    }

    /// A turn of the key had no result, because it waits for another decision in flight. Its failures are not
    /// forgotten.
    pub(crate) fn postponed(&self, key: &Key, again_after: Option<Duration>) {
        let mut state = self.state.lock();
        state.clear(key, Timer::Retry);
        state.clear(key, Timer::Requeue);
        state.awaiting_list.remove(key);
        if let Some(delay) = again_after {
            state.set(key.clone(), Timer::Requeue, Instant::now() + delay);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// A turn of the key had no result, because a live read contradicts the cache. It gets another turn when
    /// a list of volumes is complete.
    pub(crate) fn awaits_list(&self, key: &Key) {
        self.postponed(key, None);
        let mut state = self.state.lock();
        if !state.closed {
            state.awaiting_list.insert(key.clone());
        }
        drop(state);
        self.list_awaited.notify_one();
    }

    /// Waits until a key awaits a list of volumes.
    pub(crate) async fn until_list_awaited(&self) {
        self.list_awaited.notified().await;
    }

    /// A list of volumes is complete: the keys that await it get their turns.
    pub(crate) fn list_complete(&self) {
        let keys = std::mem::take(&mut self.state.lock().awaiting_list);
        self.add_all(keys);
    }

    /// A turn of the key has failed. The next one comes after its backoff, and not before `at_least`.
    pub(crate) fn failed(&self, key: &Key, at_least: Option<Duration>) -> Duration {
        let mut state = self.state.lock();
        state.awaiting_list.remove(key);
        let longest = longest_backoff(state.failures.len());
        let failures = state.failures.entry(key.clone()).or_default();
        let backoff = RETRY_BACKOFF.saturating_mul(1 << (*failures).min(31)).min(longest);
        *failures = failures.saturating_add(1);
        let delay = backoff.max(at_least.unwrap_or_default());
        state.set(key.clone(), Timer::Retry, Instant::now() + delay);
        drop(state);
        self.changed.notify_one();
        delay
    }

    /// The object of the key is gone. Another object of its name begins without failures.
    pub(crate) fn forget_failures(&self, key: &Key) {
        let mut state = self.state.lock();
        if state.failures.remove(key).is_some() {
            state.clear(key, Timer::Retry);
        }
    }

    /// Number of keys whose last turn failed, and that get another turn.
    pub(crate) fn failing(&self) -> usize {
        self.state.lock().failures.len()
    }

    /// How many keys wait to be taken.
    pub(crate) fn len(&self) -> usize {
        let state = self.state.lock();
        state.ready.len() + state.slow.len() + state.deferred.len()
    }
}

/// Longest delay of a key while so many fail.
fn longest_backoff(failing: usize) -> Duration {
    let all = RETRY_BACKOFF_EACH.saturating_mul(failing.try_into().unwrap_or(u32::MAX));
    all.clamp(RETRY_BACKOFF_MAX, RETRY_BACKOFF_CROWD_MAX)
}

impl State {
    fn add(&mut self, key: Key) {
        if let Some(in_flight) = self.in_flight.get_mut(&key) {
            in_flight.again = true;
        } else if !self.closed && self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn add_to(&mut self, key: Key, lane: Lane) {
        match lane {
            Lane::Fast => self.add(key),
            Lane::Slow if self.closed => {}
            Lane::Slow => self.slow.push_back(key),
        }
    }

    fn backs_off(&self, key: &Key) -> bool {
        self.awaiting_list.contains(key) || self.timers.contains_key(&(key.clone(), Timer::Retry))
    }

    fn take(&mut self) -> Option<Key> {
        while let Some(key) = self.pop() {
            if let Some(key) = self.begin(key) {
                return Some(key);
            }
        }
        self.give_back();
        None
    }

    /// Takes the lock of a key; `None` if it is taken already.
    fn begin(&mut self, key: Key) -> Option<Key> {
        match self.in_flight.entry(key) {
            Entry::Occupied(mut taken) => {
                taken.get_mut().again = true;
                None
            }
            Entry::Vacant(free) => {
                let key = free.key().clone();
                free.insert(InFlight::default());
                Some(key)
            }
        }
    }

    /// The next waiting key of the lane that has the turn.
    fn pop(&mut self) -> Option<Key> {
        self.turns += 1;
        if (self.turns >= SLOW_TURN || self.ready.is_empty())
            && let Some(key) = self.pop_slow()
        {
            self.turns = 0;
            return Some(key);
        }
        let key = self.ready.pop_front()?;
        self.queued.remove(&key);
        Some(key)
    }

    /// The next key of the slow lane that is not in the fast lane too.
    fn pop_slow(&mut self) -> Option<Key> {
        while let Some(key) = self.slow.pop_front() {
            if !self.queued.contains(&key) {
                return Some(key);
            }
        }
        None
    }

    /// The memory of a long list is not needed again.
    fn give_back(&mut self) {
        for lane in [&mut self.slow, &mut self.deferred] {
            if lane.is_empty() && lane.capacity() > KEPT_CAPACITY {
                *lane = VecDeque::new();
            }
        }
    }

    fn set(&mut self, key: Key, timer: Timer, at: Instant) {
        if self.closed {
            return;
        }
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
