//! Objects with one revision counter over all kinds, and the history of changes that watches and pages read.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use crate::object;
use crate::registry::RESOURCES;

/// Namespace (empty for cluster scope) and name; the order of lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Key { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// The key of an object by its metadata.
    pub(crate) fn of(object: &Value) -> Self {
        Key::new(object::namespace(object), object::name(object))
    }
}

/// One change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The revision that the change made.
    pub(crate) revision: u64,
    /// Index of the resource that keeps the object.
    pub(crate) resource: usize,
    /// The object after the change; `None` when it was deleted.
    pub(crate) object: Option<Arc<Value>>,
    /// The object before the change; `None` when it was created.
    pub(crate) previous: Option<Arc<Value>>,
}

/// History was compacted past what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compacted;

/// All objects, the revision counter, and the history.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    tables: Vec<BTreeMap<Key, Arc<Value>>>,
    history: VecDeque<Change>,
    history_max: usize,
    /// The newest revision whose change is no longer in the history.
    compacted: u64,
}

impl Store {
    /// An empty store that remembers `history_max` changes.
    pub(crate) fn new(history_max: usize) -> Self {
        Store {
            revision: 1,
            tables: vec![BTreeMap::new(); RESOURCES.len()],
            history: VecDeque::new(),
            history_max,
            compacted: 1,
        }
    }

    /// The revision of the newest change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The newest revision from which a watch cannot start, as its change has gone.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn get(&self, resource: usize, key: &Key) -> Option<&Arc<Value>> {
        self.tables[resource].get(key)
    }

    /// All objects of a resource in the order of keys.
    pub(crate) fn all(&self, resource: usize) -> &BTreeMap<Key, Arc<Value>> {
        &self.tables[resource]
    }

    /// Stores an object under the next revision, and answers it as stored.
    pub(crate) fn put(&mut self, resource: usize, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        object::meta_mut(&mut object).insert("resourceVersion".to_owned(), self.revision.to_string().into());
        let object = Arc::new(object);
        let previous = self.tables[resource].insert(Key::of(&object), Arc::clone(&object));
        self.remember(Change {
            revision: self.revision,
            resource,
            object: Some(Arc::clone(&object)),
            previous,
        });
        object
    }

    /// Removes an object, and answers it as it was.
    pub(crate) fn remove(&mut self, resource: usize, key: &Key) -> Option<Arc<Value>> {
        let previous = self.tables[resource].remove(key)?;
        self.revision += 1;
        let change =
            Change { revision: self.revision, resource, object: None, previous: Some(Arc::clone(&previous)) };
        self.remember(change);
        Some(previous)
    }

    fn remember(&mut self, change: Change) {
        self.history.push_back(change);
        while self.history.len() > self.history_max {
            if let Some(oldest) = self.history.pop_front() {
                self.compacted = oldest.revision;
            }
        }
    }

    /// Forgets the whole history.
    pub(crate) fn compact(&mut self) {
        self.history.clear();
        self.compacted = self.revision;
    }

    /// The changes after a revision, oldest first.
    pub(crate) fn changes_after(
        &self,
        revision: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Change>, Compacted> {
        if revision < self.compacted {
            return Err(Compacted);
        }
        // Every change makes exactly one revision, so its place follows from it.
        let skip = usize::try_from(revision - self.compacted).unwrap_or(usize::MAX);
        Ok(self.history.iter().skip(skip.min(self.history.len())))
    }

    /// All objects of a resource as they were at a revision.
    pub(crate) fn all_at(
        &self,
        resource: usize,
        revision: u64,
    ) -> Result<BTreeMap<Key, Arc<Value>>, Compacted> {
        let mut objects = self.tables[resource].clone();
        for change in self.changes_after(revision)?.rev().filter(|change| change.resource == resource) {
            match (&change.previous, &change.object) {
                (Some(previous), _) => {
                    objects.insert(Key::of(previous), Arc::clone(previous));
                }
                (None, Some(object)) => {
                    objects.remove(&Key::of(object));
                }
                (None, None) => {}
            }
        }
        Ok(objects)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(name: &str, note: &str) -> Value {
        json!({"metadata": {"name": name}, "note": note})
    }

    fn names(objects: &BTreeMap<Key, Arc<Value>>) -> Vec<&str> {
        objects.keys().map(|key| key.name.as_str()).collect()
    }

    #[test]
    fn each_change_makes_one_revision() {
        let mut store = Store::new(10);
        let first = store.put(0, volume("a", "1"));
        assert_eq!(object::resource_version(&first), "2");
        store.put(0, volume("a", "2"));
        store.remove(0, &Key::new("", "a")).unwrap();
        assert!(store.remove(0, &Key::new("", "a")).is_none());
        assert_eq!(store.revision(), 4);
        let revisions: Vec<u64> = store.changes_after(2).unwrap().map(|change| change.revision).collect();
        assert_eq!(revisions, [3, 4]);
    }

    #[test]
    fn the_past_can_be_read_until_it_is_compacted() {
        let mut store = Store::new(10);
        store.put(0, volume("a", "1"));
        store.put(0, volume("b", "1"));
        let then = store.revision();
        store.remove(0, &Key::new("", "a"));
        store.put(0, volume("c", "1"));
        store.put(0, volume("b", "2"));
        let past = store.all_at(0, then).unwrap();
        assert_eq!(names(&past), ["a", "b"]);
        assert_eq!(past[&Key::new("", "b")]["note"], "1");
        store.compact();
        assert_eq!(store.all_at(0, then), Err(Compacted));
        assert_eq!(names(&store.all_at(0, store.revision()).unwrap()), ["b", "c"]);
    }

    #[test]
    fn the_history_is_bounded() {
        let mut store = Store::new(2);
        for note in ["1", "2", "3", "4"] {
            store.put(0, volume("a", note));
        }
        assert_eq!(store.compacted(), 3);
        assert!(store.changes_after(2).is_err());
        assert_eq!(store.changes_after(3).unwrap().count(), 2);
    }
}
