//! All objects under one revision counter, and the history of changes that watches and pages read.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use crate::object::{self, held_bytes};

/// Namespace (empty for cluster scope) and name, in the order of lists.
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
    pub(crate) revision: u64,
    pub(crate) kind: &'static str,
    /// The object after the change; `None` after a deletion.
    pub(crate) object: Option<Arc<Value>>,
    /// The object before the change; `None` before a creation.
    pub(crate) previous: Option<Arc<Value>>,
    /// Bytes of memory of the object that the change made or removed. The object before an update belongs to
    /// an earlier change.
    bytes: usize,
}

/// The requested revision is older than the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compacted;

/// The objects of one kind.
pub(crate) type Objects = BTreeMap<Key, Arc<Value>>;

/// The objects of a kind without objects.
static NO_OBJECTS: Objects = BTreeMap::new();

/// The objects of a cluster at one moment, to be restored later.
#[derive(Clone, Debug)]
pub struct Snapshot {
    revision: u64,
    objects: BTreeMap<&'static str, Objects>,
}

/// Bounds of the history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryMax {
    /// Number of changes.
    pub(crate) changes: usize,
    /// Bytes of memory of the objects that changes made or removed.
    pub(crate) bytes: usize,
}

/// All objects, the revision counter, and the history.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    objects: BTreeMap<&'static str, Objects>,
    history: VecDeque<Change>,
    /// Sum of the bytes of the changes.
    history_bytes: usize,
    history_max: HistoryMax,
    /// The newest revision whose change is no longer in the history.
    compacted: u64,
}

impl Store {
    /// An empty store that keeps the last changes.
    pub(crate) fn new(history_max: HistoryMax) -> Self {
        Store {
            revision: 1,
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            history_bytes: 0,
            history_max,
            compacted: 1,
        }
    }

    /// The revision of the newest change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The newest revision whose change is no longer in the history.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn get(&self, kind: &str, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(kind)?.get(key)
    }

    /// All objects of a kind in the order of keys.
    pub(crate) fn all(&self, kind: &str) -> &Objects {
        self.objects.get(kind).unwrap_or(&NO_OBJECTS)
    }

    /// Stores an object under the next revision, and returns it as stored.
    pub(crate) fn put(&mut self, kind: &'static str, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        object::meta_mut(&mut object).insert("resourceVersion".to_owned(), self.revision.to_string().into());
        let object = Arc::new(object);
        let previous = self.objects.entry(kind).or_default().insert(Key::of(&object), Arc::clone(&object));
        self.record(kind, Some(Arc::clone(&object)), previous);
        object
    }

    /// Removes an object, and returns it.
    pub(crate) fn remove(&mut self, kind: &'static str, key: &Key) -> Option<Arc<Value>> {
        let previous = self.objects.get_mut(kind)?.remove(key)?;
        self.revision += 1;
        self.record(kind, None, Some(Arc::clone(&previous)));
        Some(previous)
    }

    fn record(&mut self, kind: &'static str, object: Option<Arc<Value>>, previous: Option<Arc<Value>>) {
        let bytes = object.as_ref().or(previous.as_ref()).map_or(0, |object| held_bytes(object));
        self.history_bytes += bytes;
        self.history.push_back(Change { revision: self.revision, kind, object, previous, bytes });
        while self.history.len() > self.history_max.changes || self.history_bytes > self.history_max.bytes {
            let Some(oldest) = self.history.pop_front() else { break };
            self.history_bytes -= oldest.bytes;
            self.compacted = oldest.revision;
        }
    }

    /// Becomes what another store was, as after a restore of etcd: the revision goes back, and no watch can
    /// read what was before.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) {
        (self.revision, self.objects) = (snapshot.revision, snapshot.objects.clone());
        self.compact();
    }

    /// The objects and the revision as they are now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { revision: self.revision, objects: self.objects.clone() }
    }

    /// Drops the whole history.
    pub(crate) fn compact(&mut self) {
        self.history.clear();
        self.history_bytes = 0;
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
        // Each change makes exactly one revision, so the revision gives the index.
        let skip = usize::try_from(revision - self.compacted).unwrap_or(usize::MAX);
        Ok(self.history.iter().skip(skip.min(self.history.len())))
    }

    /// All objects of a kind as of a revision.
    pub(crate) fn all_at(&self, kind: &str, revision: u64) -> Result<Objects, Compacted> {
        let mut objects = self.all(kind).clone();
        for change in self.changes_after(revision)?.rev().filter(|change| change.kind == kind) {
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
    use crate::registry::VOLUME;

    #[test]
    fn a_full_history_drops_its_oldest_change() {
        let sized = held_bytes(&json!({"metadata": {"name": "a", "resourceVersion": "2"}, "note": "1"}));
        for max in [
            HistoryMax { changes: 2, bytes: usize::MAX },
            HistoryMax { changes: usize::MAX, bytes: 3 * sized - 1 },
        ] {
            let mut store = Store::new(max);
            for note in ["1", "2", "3", "4"] {
                store.put(VOLUME, json!({"metadata": {"name": "a"}, "note": note}));
            }
            assert_eq!(store.compacted(), 3, "{max:?}");
            assert!(store.changes_after(2).is_err());
            assert_eq!(store.changes_after(3).unwrap().count(), 2);
        }
    }

    #[test]
    fn the_history_counts_memory_which_is_many_times_the_json_of_small_fields() {
        let many: Value = (0..1_000).map(|field| (field.to_string(), Value::Null)).collect();
        let object = json!({"metadata": {"name": "a"}, "many": many});
        let json = crate::object::json_bytes(&object);
        let mut store = Store::new(HistoryMax { changes: usize::MAX, bytes: 4 * json });
        store.put(VOLUME, object);
        assert_eq!(store.compacted(), 2);
    }
}
