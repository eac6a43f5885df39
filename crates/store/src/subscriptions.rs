//! Who has to be woken when an answer changes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Mutex, MutexGuard};

use bindery_core::{AccessModes, Quantity, Text, Volume, VolumeMode};
use roaring::RoaringBitmap;

use crate::change::{Change, Revision, Topic, Wanted};
use crate::index::Ids;

/// Changes that are remembered for decisions that are being made, at most. A thousand last for the time of a
/// live read at 16,000 changes a second; a decision that takes longer is made once more.
const LOG_MAX: usize = 1_024;

/// Topics and offers of a change that is remembered, at most: a relist after a 410 changes more, and then
/// every decision that is being made is made once more.
const LOGGED_CHANGE_MAX: usize = 256;

/// Which keys depend on which facts.
///
/// A decision is made on the store as of some revision, and its key is subscribed afterwards. A change in
/// between is found by [`Subscriptions::subscribe`], any later one by [`Subscriptions::wake`], so none is
/// missed, whatever the order in which threads call.
#[derive(Debug)]
pub struct Subscriptions<K> {
    inner: Mutex<Inner<K>>,
}

#[derive(Debug)]
struct Inner<K> {
    numbers: HashMap<K, u32>,
    subscribers: Vec<Option<Subscriber<K>>>,
    vacant: Vec<u32>,
    /// By the facts of topics that changes name.
    by_fact: HashMap<Fact, Ids>,
    /// Makes facts.
    hasher: RandomState,
    by_query: Queries,
    /// The latest changes, by revision.
    log: VecDeque<Change>,
    /// The latest revision that is not in the log any more.
    forgotten: Revision,
}

/// Stands for a topic. There are several for each object, so names are not kept twice; where two topics share one, a key
/// is decided once more than it had to be.
type Fact = u64;

#[derive(Debug)]
struct Subscriber<K> {
    key: K,
    facts: Box<[Fact]>,
    wanted: Box<[Wanted]>,
}

/// Queries, by what volumes have to be equal in, and then by size: a volume that is offered finds those that
/// it meets without looking at others. Equal queries, of a thousand equal claims, are one.
#[derive(Debug, Default)]
struct Queries {
    groups: HashMap<Group, Sizes>,
}

/// Queries of a group, by whole bytes and nanos of what they ask for at least.
type Sizes = BTreeMap<(u64, u32), HashMap<Wanted, Ids>>;

/// Class, volume mode and attributes class.
type Group = (Text, VolumeMode, Text);

impl<K> Default for Subscriptions<K> {
    fn default() -> Self {
        Self {
            inner: Mutex::new(Inner {
                numbers: HashMap::new(),
                subscribers: Vec::new(),
                vacant: Vec::new(),
                by_fact: HashMap::new(),
                hasher: RandomState::new(),
                by_query: Queries::default(),
                log: VecDeque::new(),
                forgotten: Revision::default(),
            }),
        }
    }
}

impl<K: Clone + Eq + Hash> Subscriptions<K> {
    /// Nobody depends on anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces what a key depends on, after a decision that was made on the store as of `since`
    /// ([`crate::Session::revision`]).
    ///
    /// Answers whether one of the facts has changed since then: no [`Subscriptions::wake`] will tell, so the
    /// key has to be decided again at once.
    #[must_use = "a change between decision and subscription is told only here"]
    pub fn subscribe(&self, key: K, since: Revision, topics: Vec<Topic>) -> bool {
        let mut inner = self.inner();
        let changed = inner.has_changed(since, &topics);
        inner.remove(&key);
        if !topics.is_empty() {
            inner.insert(key, topics);
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
        let keys: Vec<K> = inner.numbers.keys().cloned().collect();
        keys.iter().for_each(|key| inner.remove(key));
    }

    /// The keys that depend on what has changed, each once, in no meaningful order.
    ///
    /// A key for which `is_once` answers true depends on nothing any more: its next decision, which is to come whatever else
    /// changes, subscribes it again. One that waits long for that decision is not woken for each of a thousand changes before.
    pub fn wake(&self, change: &Change, is_once: impl Fn(&K) -> bool) -> Vec<K> {
        if change.is_empty() {
            return Vec::new();
        }
        let mut inner = self.inner();
        inner.remember(change);
        let numbers = inner.dependents(change);
        let woken: Vec<K> =
            numbers.iter().filter_map(|number| inner.subscriber(number).map(|s| s.key.clone())).collect();
        woken.iter().filter(|key| is_once(key)).for_each(|key| inner.remove(key));
        woken
    }

    /// How many keys depend on something.
    pub fn len(&self) -> usize {
        self.inner().numbers.len()
    }

    /// Whether no key depends on anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn inner(&self) -> MutexGuard<'_, Inner<K>> {
        self.inner.lock().expect("no code panics while it holds the subscriptions' lock")
    }
}

impl<K: Clone + Eq + Hash> Inner<K> {
    fn subscriber(&self, number: u32) -> Option<&Subscriber<K>> {
        self.subscribers[number as usize].as_ref()
    }

    fn insert(&mut self, key: K, topics: Vec<Topic>) {
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.subscribers.push(None);
            u32::try_from(self.subscribers.len() - 1).expect("fewer than 2^32 keys fit into memory")
        });
        let (mut facts, mut wanted) = (Vec::with_capacity(topics.len()), Vec::new());
        for topic in topics {
            if let Topic::Candidates(query) = topic {
                self.by_query.insert(&query, number);
                wanted.push(query);
            } else {
                let fact = self.fact(&topic);
                add(&mut self.by_fact, &fact, number);
                facts.push(fact);
            }
        }
        self.numbers.insert(key.clone(), number);
        let subscriber = Subscriber { key, facts: facts.into(), wanted: wanted.into() };
        self.subscribers[number as usize] = Some(subscriber);
    }

    fn remove(&mut self, key: &K) {
        let Some(number) = self.numbers.remove(key) else { return };
        self.vacant.push(number);
        let Some(subscriber) = self.subscribers[number as usize].take() else { return };
        for fact in &subscriber.facts {
            take(&mut self.by_fact, fact, number);
        }
        for wanted in &subscriber.wanted {
            self.by_query.remove(wanted, number);
        }
    }

    fn fact(&self, topic: &Topic) -> Fact {
        self.hasher.hash_one(topic)
    }

    fn dependents(&self, change: &Change) -> RoaringBitmap {
        let mut numbers = RoaringBitmap::new();
        let mut depend = |ids: &Ids| numbers |= &*ids.bitmap();
        for topic in &change.topics {
            let Topic::AccessSets(set) = topic else {
                self.by_fact.get(&self.fact(topic)).into_iter().for_each(&mut depend);
                continue;
            };
            for containing in subsets(*set) {
                let fact = self.fact(&Topic::AccessSets(containing));
                self.by_fact.get(&fact).into_iter().for_each(&mut depend);
            }
        }
        for volume in &change.offers {
            self.by_query.met_by(volume).for_each(&mut depend);
        }
        numbers
    }

    fn has_changed(&self, since: Revision, topics: &[Topic]) -> bool {
        let later = self.log.iter().rev().take_while(|change| change.revision > since);
        since < self.forgotten || later.into_iter().any(|change| concerns(change, topics))
    }

    fn remember(&mut self, change: &Change) {
        if change.topics.len() + change.offers.len() > LOGGED_CHANGE_MAX {
            self.forgotten = self.forgotten.max(change.revision);
            return;
        }
        // Threads may tell of their changes in another order than they made them.
        let at = self.log.partition_point(|other| other.revision <= change.revision);
        self.log.insert(at, change.clone());
        if self.log.len() > LOG_MAX
            && let Some(oldest) = self.log.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.revision);
        }
    }
}

impl Queries {
    fn insert(&mut self, wanted: &Wanted, number: u32) {
        let sizes = self.groups.entry(group(wanted)).or_default();
        add(sizes.entry(size(wanted)).or_default(), wanted, number);
    }

    fn remove(&mut self, wanted: &Wanted, number: u32) {
        let group = group(wanted);
        let Some(sizes) = self.groups.get_mut(&group) else { return };
        if let Some(queries) = sizes.get_mut(&size(wanted)) {
            take(queries, wanted, number);
            if queries.is_empty() {
                sizes.remove(&size(wanted));
            }
        }
        if sizes.is_empty() {
            self.groups.remove(&group);
        }
    }

    fn met_by(&self, volume: &Volume) -> impl Iterator<Item = &Ids> {
        let attributes_class = volume.attributes_class.clone().unwrap_or_default();
        let group = self.groups.get(&(volume.class.clone(), volume.mode, attributes_class));
        let capacity = volume.capacity.unwrap_or(Quantity::ZERO);
        let sizes = group.into_iter().flat_map(move |sizes| sizes.range(..=(capacity.whole, capacity.nanos)));
        sizes
            .flat_map(|(_, queries)| queries)
            .filter(|(wanted, _)| wanted.is_met_by(volume))
            .map(|(_, ids)| ids)
    }
}

fn group(wanted: &Wanted) -> Group {
    (wanted.query.class.clone(), wanted.query.mode, wanted.query.attributes_class.clone())
}

fn size(wanted: &Wanted) -> (u64, u32) {
    (wanted.query.at_least.whole, wanted.query.at_least.nanos)
}

fn add<T: Clone + Eq + Hash>(map: &mut HashMap<T, Ids>, entry: &T, number: u32) {
    match map.get_mut(entry) {
        Some(ids) => ids.insert(number),
        None => {
            map.insert(entry.clone(), Ids::one(number));
        }
    }
}

fn take<T: Eq + Hash>(map: &mut HashMap<T, Ids>, entry: &T, number: u32) {
    if map.get_mut(entry).is_some_and(|ids| ids.remove(number)) {
        map.remove(entry);
    }
}

/// Whether a change changes one of the topics.
fn concerns(change: &Change, topics: &[Topic]) -> bool {
    topics.iter().any(|topic| match topic {
        Topic::Candidates(wanted) => change.offers.iter().any(|volume| wanted.is_met_by(volume)),
        Topic::AccessSets(containing) => change
            .topics
            .iter()
            .any(|changed| matches!(changed, Topic::AccessSets(set) if set.contains(*containing))),
        topic => change.topics.contains(topic),
    })
}

/// Every set that this one contains.
fn subsets(set: AccessModes) -> impl Iterator<Item = AccessModes> {
    (0..=set.bits()).filter_map(AccessModes::from_bits).filter(move |subset| set.contains(*subset))
}
