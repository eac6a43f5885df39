//! The notes that wait to be written: at most one for each event, the first of an object and reason before
//! all others.

use std::collections::{HashMap, VecDeque};

use super::Entry;
use super::correlate::{Correlated, OBJECTS_MAX};

/// Most notes that wait. At 20 a second they take 55 minutes to write, and a note that is older says little.
const PENDING_MAX: usize = OBJECTS_MAX;

/// A note and its place among those before it.
pub(super) struct PendingNote {
    pub(super) entry: Entry,
    pub(super) correlated: Correlated,
}

/// Notes by the event that they are for, in two lanes.
#[derive(Default)]
pub(super) struct Pending {
    notes: HashMap<u64, PendingNote>,
    /// Notes that are the first of their object and reason.
    first: VecDeque<u64>,
    later: VecDeque<u64>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// Whether a note for this event waits.
    pub(super) fn has(&self, id: u64) -> bool {
        self.notes.contains_key(&id)
    }

    /// Adds a note. An earlier one for the same event keeps its place and says what this one says. Returns
    /// the note for which there is no room: a first one is kept rather than another one.
    pub(super) fn put(&mut self, note: PendingNote) -> Option<PendingNote> {
        let id = note.correlated.id;
        if let Some(earlier) = self.notes.get_mut(&id) {
            let is_new = earlier.correlated.is_new;
            *earlier = PendingNote { correlated: Correlated { is_new, ..note.correlated }, ..note };
            return None;
        }
        let mut surplus = None;
        if self.notes.len() >= PENDING_MAX {
            let replaceable = if note.correlated.is_first { self.later.pop_back() } else { None };
            let Some(replaceable) = replaceable else { return Some(note) };
            surplus = self.notes.remove(&replaceable);
        }
        if note.correlated.is_first { &mut self.first } else { &mut self.later }.push_back(id);
        self.notes.insert(id, note);
        surplus
    }

    /// Takes the note that is to be written next.
    pub(super) fn pop(&mut self) -> Option<PendingNote> {
        let id = self.first.pop_front().or_else(|| self.later.pop_front())?;
        self.notes.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use bindery_core::{EventType, Regarding, VolumeTarget};

    use super::*;

    fn note(id: u64, message: &str, is_first: bool) -> PendingNote {
        let target = VolumeTarget { name: "v1".into(), uid: "u".into(), version: "1".into() };
        let entry = Entry {
            regarding: Regarding::Volume(target),
            event_type: EventType::Normal,
            reason: Cow::Borrowed("R"),
            message: message.to_owned(),
        };
        let message = message.to_owned();
        let correlated = Correlated { id, message, count: 1, first: 0, last: 0, is_new: is_first, is_first };
        PendingNote { entry, correlated }
    }

    fn written(pending: &mut Pending) -> Vec<(u64, String, bool)> {
        let notes = std::iter::from_fn(|| pending.pop());
        notes.map(|note| (note.correlated.id, note.correlated.message, note.correlated.is_new)).collect()
    }

    #[test]
    fn first_notes_go_before_others_and_a_later_one_of_the_same_event_takes_the_place() {
        let mut pending = Pending::default();
        for note in [note(1, "old", false), note(2, "a", true), note(3, "b", true), note(2, "c", false)] {
            assert!(pending.put(note).is_none());
        }
        let expected = [(2, "c".to_owned(), true), (3, "b".to_owned(), true), (1, "old".to_owned(), false)];
        assert_eq!(written(&mut pending), expected);
        assert!(pending.is_empty());
    }

    #[test]
    fn without_room_a_first_note_takes_the_place_of_another_one() {
        let mut pending = Pending::default();
        for id in 0..PENDING_MAX as u64 {
            assert!(pending.put(note(id, "m", id > 0)).is_none());
        }
        let refused = |pending: &mut Pending, note| pending.put(note).map(|note| note.correlated.id);
        assert_eq!(refused(&mut pending, note(100_000, "m", false)), Some(100_000));
        assert_eq!(refused(&mut pending, note(100_001, "m", true)), Some(0));
        assert_eq!(refused(&mut pending, note(100_002, "m", true)), Some(100_002));
        assert_eq!(refused(&mut pending, note(1, "m", false)), None);
        assert_eq!(written(&mut pending).len(), PENDING_MAX);
    }
}
