//! The queue of notes: at most one for each event, the first of an object and reason before all others.

use std::collections::{HashMap, VecDeque};

use bindery_controller::Note;

use super::correlate::{Correlated, OBJECTS_MAX};

/// Most queued notes. At 20 a second they take 55 minutes, after which an event says little.
const QUEUED_MAX: usize = OBJECTS_MAX.get();

/// A note, correlated with those before it.
pub(super) struct Queued {
    pub(super) note: Note,
    pub(super) correlated: Correlated,
}

/// Notes by event, in two lanes.
#[derive(Default)]
pub(super) struct Queue {
    notes: HashMap<u64, Queued>,
    /// Events whose note is the first of its object and reason.
    first: VecDeque<u64>,
    later: VecDeque<u64>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// Whether a note for this event is queued.
    pub(super) fn has(&self, id: u64) -> bool {
        self.notes.contains_key(&id)
    }

    /// Adds a note. If one for the same event is queued, this one takes its place in the queue. Returns a
    /// note that is dropped because the queue is full; first notes are kept rather than repetitions.
    pub(super) fn put(&mut self, new: Queued) -> Option<Queued> {
        let id = new.correlated.id;
        if let Some(earlier) = self.notes.get_mut(&id) {
            let is_new = earlier.correlated.is_new;
            *earlier = Queued { correlated: Correlated { is_new, ..new.correlated }, ..new };
            return None;
        }
        let mut surplus = None;
        if self.notes.len() >= QUEUED_MAX {
            let replaceable = if new.correlated.is_first { self.later.pop_back() } else { None };
            let Some(replaceable) = replaceable else { return Some(new) };
            surplus = self.notes.remove(&replaceable);
        }
        if new.correlated.is_first { &mut self.first } else { &mut self.later }.push_back(id);
        self.notes.insert(id, new);
        surplus
    }

    /// Takes the next note.
    pub(super) fn pop(&mut self) -> Option<Queued> {
        let id = self.first.pop_front().or_else(|| self.later.pop_front())?;
        self.notes.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use bindery_core::{EventType, Regarding, VolumeTarget};

    use super::*;

    fn note(id: u64, message: &str, is_first: bool) -> Queued {
        let target = VolumeTarget { name: "v1".into(), uid: "u".into(), version: "1".into() };
        let note = Note {
            regarding: Regarding::Volume(target),
            event_type: EventType::Normal,
            reason: "R",
            message: message.to_owned(),
        };
        let message = message.to_owned();
        let correlated = Correlated { id, message, count: 1, first: 0, last: 0, is_new: is_first, is_first };
        Queued { note, correlated }
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
