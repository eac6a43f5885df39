//! Who has to be woken when an answer changes.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;

use bindery_core::AccessModes;

use crate::change::{Change, Revision, Topic};

/// Which keys depend on which facts.
#[derive(Debug)]
pub struct Subscriptions<K> {
    inner: Mutex<Inner<K>>,
}

#[derive(Debug)]
struct Inner<K> {
    keys: HashMap<K, Vec<Topic>>,
    log: Vec<Change>,
}

impl<K: Clone + Eq + Hash + Ord> Default for Subscriptions<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Clone + Eq + Hash + Ord> Subscriptions<K> {
    /// Nobody depends on anything.
    pub fn new() -> Self {
        Self { inner: Mutex::new(Inner { keys: HashMap::new(), log: Vec::new() }) }
    }

    /// Replaces what a key depends on, after a decision that was made on the store as of `since`
    /// ([`crate::Session::revision`]).
    ///
    /// Answers whether one of the facts has changed since then: no [`Subscriptions::wake`] will tell, so the
    /// key has to be decided again at once.
    #[must_use = "a change between decision and subscription is told only here"]
    pub fn subscribe(&self, key: K, since: Revision, topics: Vec<Topic>) -> bool {
        let mut inner = self.inner.lock().expect("no code panics while it holds the subscriptions' lock");
        let changed = inner.log.iter().any(|change| change.revision > since && depends(&topics, change));
        inner.keys.insert(key, topics);
        changed
    }

    /// A key is gone.
    pub fn unsubscribe(&self, key: &K) {
        self.inner.lock().expect("no code panics while it holds the subscriptions' lock").keys.remove(key);
    }

    /// The keys that depend on what has changed, each once. They stay subscribed.
    pub fn wake(&self, change: &Change) -> Vec<K> {
        let mut inner = self.inner.lock().expect("no code panics while it holds the subscriptions' lock");
        inner.log.push(change.clone());
        let mut keys: Vec<K> = inner
            .keys
            .iter()
            .filter(|(_, topics)| depends(topics, change))
            .map(|(key, _)| key.clone())
            .collect();
        keys.sort();
        keys
    }
}

fn depends(topics: &[Topic], change: &Change) -> bool {
    topics.iter().any(|topic| match topic {
        Topic::Candidates(wanted) => change.offers.iter().any(|volume| wanted.is_met_by(volume)),
        Topic::AccessSets(containing) => change
            .topics
            .iter()
            .any(|t| matches!(t, Topic::AccessSets(set) if AccessModes::contains(*set, *containing))),
        topic => change.topics.contains(topic),
    })
}
