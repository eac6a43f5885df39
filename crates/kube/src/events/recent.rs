//! A map that drops the least recently used entry when it is full.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Values of the keys that were used last.
pub(super) struct Recent<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// The keys in the order of their last use.
    order: BTreeMap<u64, K>,
    /// Number of uses of all keys.
    uses: u64,
    capacity: usize,
}

struct Entry<V> {
    value: V,
    /// Place in the order.
    used: u64,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    /// An empty map for `capacity` entries.
    pub(super) fn new(capacity: usize) -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), uses: 0, capacity }
    }

    /// Uses a key and returns its value, which is made for a new key.
    pub(super) fn get_or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        if !self.entries.contains_key(key)
            && self.entries.len() >= self.capacity
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.uses += 1;
        let entry =
            self.entries.entry(key.clone()).or_insert_with(|| Entry { value: make(), used: self.uses });
        self.order.remove(&entry.used);
        entry.used = self.uses;
        self.order.insert(entry.used, key.clone());
        &mut entry.value
    }

    /// The value of a key, without using it.
    pub(super) fn peek_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_dropped() {
        let mut recent = Recent::new(2);
        recent.get_or_insert_with(&"a", || 1);
        recent.get_or_insert_with(&"b", || 2);
        assert_eq!(*recent.get_or_insert_with(&"a", || 0), 1);
        recent.peek_mut(&"b");
        recent.get_or_insert_with(&"c", || 3);
        assert_eq!(["a", "b", "c"].map(|key| recent.peek_mut(&key).copied()), [Some(1), None, Some(3)]);
        assert_eq!((recent.entries.len(), recent.order.len()), (2, 2));
    }
}
