//! Which keys are decided again when an answer changes.

mod waiting;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard};

use bindery_core::{AccessModes, Volume};
use roaring::RoaringBitmap;

use self::waiting::{Place, Waiting};
use crate::change::{Change, Fact, Revision, Wanted};
use crate::index::Ids;

/// Changes that are remembered for decisions that are being made, at most. A thousand last for the time of a
/// live read at 16,000 changes a second; a decision that takes longer is made once more.
const LOG_MAX: usize = 1_024;

/// Facts and offers of a change that is remembered, at most: a relist after a 410 changes more, and then
/// every decision that is being made is made once more.
const LOGGED_CHANGE_MAX: usize = 256;

/// Which keys depend on which facts.
///
/// A decision is made on the store as of some revision, and its key is subscribed afterwards. A change in
/// between is found by [`Subscriptions::subscribe`], any later one by [`Subscriptions::wake`], so none is
/// missed, whatever the order in which threads call.
///
/// A fact wakes all keys that depend on it. A free volume wakes one key whose query it meets
/// ([`Fact::Candidates`]): the one that has waited longest. When that key has been decided
/// ([`Subscriptions::pass_on`]) and the volume is still free, the next one is woken. So a volume among 10,000
/// claims that wait costs as many decisions as claims decline it, and one more.
///
/// The order is that of the first subscription that asked for volumes; a key keeps its place until it asks
/// for none.
#[derive(Debug)]
pub struct Subscriptions<K> {
    inner: Mutex<Inner<K>>,
}

#[derive(Debug)]
struct Inner<K> {
    numbers: HashMap<K, u32>,
    subscribers: Vec<Option<Subscriber<K>>>,
    vacant: Vec<u32>,
    /// The keys that depend on each fact, by their numbers. Candidates are in `waiting`.
    dependents: HashMap<FactHash, Ids>,
    hasher: RandomState,
    waiting: Waiting<K>,
    /// The latest changes, by revision.
    log: VecDeque<Logged>,
    /// The latest revision that is not in the log any more.
    forgotten: Revision,
}

/// A change that is remembered.
#[derive(Debug)]
struct Logged {
    revision: Revision,
    facts: Vec<Fact>,
    offers: Vec<Arc<Volume>>,
}

/// The hash of a [`Fact`], kept instead of the fact because names take memory and each object has several
/// facts. Where two facts have one hash, a key is decided once more than necessary.
type FactHash = u64;

#[derive(Debug)]
struct Subscriber<K> {
    key: K,
    hashes: Box<[FactHash]>,
    wanted: Box<[Wanted]>,
    /// Where it waits, if it wants volumes.
    place: Option<Place>,
}

/// Why a volume is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It is free, and was not or was another before.
    New,
    /// It is as it was, and a decision that had picked it has not taken it.
    Returned,
}

/// What has keys decided. Called under the lock of [`Subscriptions`], so it must not call them.
pub trait Dispatcher<K> {
    /// The volume of that name, where it is free and no decision in flight has picked it.
    fn free(&self, volume: &str) -> Option<Arc<Volume>>;

    /// Has a key decided soon, because a free volume meets its query. The decision ends with
    /// [`Subscriptions::pass_on`].
    ///
    /// `false` where another key can have the volume first, because the decision of this one is in flight or
    /// backs off. Such a key has to be decided once more after that, without another call.
    fn ask(&self, key: &K, offer: Offer) -> bool;
}

impl<K> Default for Subscriptions<K> {
    fn default() -> Self {
        Self {
            inner: Mutex::new(Inner {
                numbers: HashMap::new(),
                subscribers: Vec::new(),
                vacant: Vec::new(),
                dependents: HashMap::new(),
                hasher: RandomState::new(),
                waiting: Waiting::default(),
                log: VecDeque::new(),
                forgotten: Revision::default(),
            }),
        }
    }
}

impl<K: Clone + Eq + Hash> Subscriptions<K> {
    /// No subscriptions yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces what a key depends on, after a decision that was made on the store as of `since`
    /// ([`crate::Session::revision`]).
    ///
    /// Returns whether one of the facts has changed since then: no [`Subscriptions::wake`] will tell, so the
    /// key has to be decided again at once.
    #[must_use = "a change between decision and subscription is told only here"]
    pub fn subscribe(&self, key: K, since: Revision, facts: Vec<Fact>) -> bool {
        let mut inner = self.inner();
        let changed = inner.has_changed(since, &facts);
        let place = inner.remove(&key);
        if !facts.is_empty() {
            inner.insert(key, facts, place);
        }
        changed
    }

    /// A key is gone, or depends on nothing any more.
    pub fn unsubscribe(&self, key: &K) {
        self.inner().remove(key);
    }

    /// No key depends on anything any more.
    pub fn clear(&self) {
        let mut inner = self.inner();
        inner.numbers.clear();
        inner.subscribers.clear();
        inner.vacant.clear();
        inner.dependents.clear();
        inner.waiting = Waiting::default();
    }

    /// Has the dispatcher ask one key about each volume that the change offers. Returns the keys that
    /// depend on other facts that have changed, each once, in no meaningful order.
    ///
    /// A key for which `is_once` returns true no longer depends on those facts: its next decision, which is
    /// certain to come, subscribes it again. So a key that waits long for its decision is not woken for each
    /// of a thousand changes.
    pub fn wake(
        &self,
        change: &Change,
        offer: Offer,
        dispatcher: &impl Dispatcher<K>,
        is_once: impl Fn(&K) -> bool,
    ) -> Vec<K> {
        if change.is_empty() {
            return Vec::new();
        }
        let mut inner = self.inner();
        inner.remember(change);
        let numbers = inner.dependents(change);
        let woken: Vec<K> =
            numbers.iter().filter_map(|number| inner.subscriber(number).map(|s| s.key.clone())).collect();
        woken.iter().filter(|key| is_once(key)).for_each(|key| inner.forget_facts(key));
        // As they are now: what came between has its own change.
        for volume in change.offers.iter().filter_map(|volume| dispatcher.free(&volume.name)) {
            inner.waiting.offer(&volume, offer, dispatcher);
        }
        woken
    }

    /// A key has been decided, or cannot be: what it was asked about and has not picked is offered to the
    /// next key.
    pub fn pass_on(&self, key: &K, dispatcher: &impl Dispatcher<K>) {
        self.inner().waiting.pass_on(key, dispatcher);
    }

    fn inner(&self) -> MutexGuard<'_, Inner<K>> {
        self.inner.lock().expect("no code panics while it holds the subscriptions' lock")
    }
}

impl<K: Clone + Eq + Hash> Inner<K> {
    fn subscriber(&self, number: u32) -> Option<&Subscriber<K>> {
        self.subscribers[number as usize].as_ref()
    }

    fn insert(&mut self, key: K, facts: Vec<Fact>, place: Option<Place>) {
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.subscribers.push(None);
            u32::try_from(self.subscribers.len() - 1).expect("fewer than 2^32 keys fit into memory")
        });
        let (mut hashes, mut wanted) = (Vec::with_capacity(facts.len()), Vec::new());
        for fact in facts {
            if let Fact::Candidates(query) = fact {
                wanted.push(query);
                continue;
            }
            let hash = self.hasher.hash_one(&fact);
            hashes.push(hash);
            let dependents = self.dependents.entry(hash);
            dependents.and_modify(|ids| ids.insert(number)).or_insert_with(|| Ids::one(number));
        }
        let place = (!wanted.is_empty()).then(|| self.waiting.insert(&key, &mut wanted, place));
        self.numbers.insert(key.clone(), number);
        let subscriber = Subscriber { key, hashes: hashes.into(), wanted: wanted.into(), place };
        self.subscribers[number as usize] = Some(subscriber);
    }

    /// Returns where the key waited for volumes.
    fn remove(&mut self, key: &K) -> Option<Place> {
        let number = self.numbers.remove(key)?;
        self.vacant.push(number);
        let subscriber = self.subscribers[number as usize].take()?;
        self.forget(&subscriber.hashes, number);
        let place = subscriber.place?;
        self.waiting.remove(&subscriber.wanted, place);
        Some(place)
    }

    /// Leaves a key nothing but its place in the line for volumes.
    fn forget_facts(&mut self, key: &K) {
        let Some(number) = self.numbers.get(key).copied() else { return };
        let Some(subscriber) = &mut self.subscribers[number as usize] else { return };
        if subscriber.place.is_none() {
            self.remove(key);
            return;
        }
        let hashes = std::mem::take(&mut subscriber.hashes);
        self.forget(&hashes, number);
    }

    fn forget(&mut self, hashes: &[FactHash], number: u32) {
        for hash in hashes {
            if self.dependents.get_mut(hash).is_some_and(|ids| ids.remove(number)) {
                self.dependents.remove(hash);
            }
        }
    }

    fn dependents(&self, change: &Change) -> RoaringBitmap {
        let mut numbers = RoaringBitmap::new();
        for fact in change.all_facts().flat_map(subscribed_as) {
            if let Some(ids) = self.dependents.get(&self.hasher.hash_one(&fact)) {
                numbers |= &*ids.bitmap();
            }
        }
        numbers
    }

    fn has_changed(&self, since: Revision, facts: &[Fact]) -> bool {
        let later = self.log.iter().rev().take_while(|change| change.revision > since);
        since < self.forgotten || later.into_iter().any(|change| concerns(change, facts))
    }

    fn remember(&mut self, change: &Change) {
        let revision = change.revision;
        if change.all_facts().count() + change.offers.len() > LOGGED_CHANGE_MAX {
            self.forgotten = self.forgotten.max(revision);
            return;
        }
        // Threads may tell of their changes in another order than they made them.
        let at = self.log.partition_point(|other| other.revision <= revision);
        let logged = Logged { revision, facts: change.all_facts().collect(), offers: change.offers.clone() };
        self.log.insert(at, logged);
        if self.log.len() > LOG_MAX
            && let Some(oldest) = self.log.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.revision);
        }
    }
}

/// Whether a change changes one of the facts.
fn concerns(change: &Logged, facts: &[Fact]) -> bool {
    facts.iter().any(|fact| match fact {
        Fact::Candidates(wanted) => change.offers.iter().any(|volume| wanted.is_met_by(volume)),
        Fact::AccessSets(containing) => change
            .facts
            .iter()
            .any(|changed| matches!(changed, Fact::AccessSets(set) if set.contains(*containing))),
        fact => change.facts.contains(fact),
    })
}

/// The facts under which keys depend on a fact that changed.
fn subscribed_as(changed: Fact) -> Vec<Fact> {
    match changed {
        Fact::AccessSets(set) => {
            let subsets = (0..=set.bits()).filter_map(AccessModes::from_bits);
            subsets.filter(|subset| set.contains(*subset)).map(Fact::AccessSets).collect()
        }
        fact => vec![fact],
    }
}
