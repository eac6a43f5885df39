//! The queue of entries: at most one for each event, the first of an object and reason before all others.

use std::collections::{HashMap, VecDeque};

use super::Entry;
use super::correlate::{Correlated, OBJECTS_MAX};

/// Most queued entries. At 20 a second they take 55 minutes, after which an event says little.
const QUEUED_MAX: usize = OBJECTS_MAX;

/// An entry, correlated with those before it.
pub(super) struct Queued {
    pub(super) entry: Entry,
    pub(super) correlated: Correlated,
}

/// Entries by event, in two lanes.
#[derive(Default)]
pub(super) struct Queue {
    entries: HashMap<u64, Queued>,
    /// Events whose entry is the first of its object and reason.
    first: VecDeque<u64>,
    later: VecDeque<u64>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether an entry for this event is queued.
    pub(super) fn has(&self, id: u64) -> bool {
        self.entries.contains_key(&id)
    }

    /// Adds an entry. If one for the same event is queued, this one takes its place in the queue. Returns an
    /// entry that is dropped because the queue is full; first entries are kept rather than repetitions.
    pub(super) fn put(&mut self, new: Queued) -> Option<Queued> {
        let id = new.correlated.id;
        if let Some(earlier) = self.entries.get_mut(&id) {
            let is_new = earlier.correlated.is_new;
            *earlier = Queued { correlated: Correlated { is_new, ..new.correlated }, ..new };
            return None;
        }
        let mut surplus = None;
        if self.entries.len() >= QUEUED_MAX {
            let replaceable = if new.correlated.is_first { self.later.pop_back() } else { None };
            let Some(replaceable) = replaceable else { return Some(new) };
            surplus = self.entries.remove(&replaceable);
        }
        if new.correlated.is_first { &mut self.first } else { &mut self.later }.push_back(id);
        self.entries.insert(id, new);
        surplus
    }

    /// Takes the next entry.
    pub(super) fn pop(&mut self) -> Option<Queued> {
        let id = self.first.pop_front().or_else(|| self.later.pop_front())?;
        self.entries.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use bindery_core::{EventType, Regarding, VolumeTarget};

    use super::*;

    fn note(id: u64, message: &str, is_first: bool) -> Queued {
        let target = VolumeTarget { name: "v1".into(), uid: "u".into(), version: "1".into() };
        let entry = Entry {
            regarding: Regarding::Volume(target),
            event_type: EventType::Normal,
            reason: Cow::Borrowed("R"),
            message: message.to_owned(),
        };
        let message = message.to_owned();
        let correlated = Correlated { id, message, count: 1, first: 0, last: 0, is_new: is_first, is_first };
        Queued { entry, correlated }
    }

    fn written(queue: &mut Queue) -> Vec<(u64, String, bool)> {
        let notes = std::iter::from_fn(|| queue.pop());
        notes.map(|note| (note.correlated.id, note.correlated.message, note.correlated.is_new)).collect()
    }

    #[test]
    fn first_entries_go_first_and_a_later_one_of_an_event_replaces_it() {
        let mut queue = Queue::default();
        for note in [note(1, "old", false), note(2, "a", true), note(3, "b", true), note(2, "c", false)] {
            assert!(queue.put(note).is_none());
        }
        let expected = [(2, "c".to_owned(), true), (3, "b".to_owned(), true), (1, "old".to_owned(), false)];
        assert_eq!(written(&mut queue), expected);
        assert!(queue.is_empty());
    }

    #[test]
    fn in_a_full_queue_a_first_entry_replaces_a_repetition() {
        let mut queue = Queue::default();
        for id in 0..QUEUED_MAX as u64 {
            assert!(queue.put(note(id, "m", id > 0)).is_none());
        }
        let refused = |queue: &mut Queue, note| queue.put(note).map(|note| note.correlated.id);
        assert_eq!(refused(&mut queue, note(100_000, "m", false)), Some(100_000));
        assert_eq!(refused(&mut queue, note(100_001, "m", true)), Some(0));
        assert_eq!(refused(&mut queue, note(100_002, "m", true)), Some(100_002));
        assert_eq!(refused(&mut queue, note(1, "m", false)), None);
        assert_eq!(written(&mut queue).len(), QUEUED_MAX);
    }
}
