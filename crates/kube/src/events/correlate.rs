//! Decides which events are new, which repeat an earlier one, and which are too many: client-go's
//! `EventCorrelator`, with its numbers. RATIONALE.md lists the differences.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;

use bindery_controller::Note;
use bindery_core::{EventType, Timestamp, Uid};
use lru::LruCache;

/// From this many different messages of one reason on, events are combined (`defaultAggregateMaxEvents`).
const MESSAGES_MAX: usize = 10;
/// Seconds within which messages are counted (`defaultAggregateIntervalInSeconds`).
const MESSAGES_WITHIN: Timestamp = 600;
/// Events of one object and type that may be written at once (`defaultSpamBurst`).
const BURST: i64 = 25;
/// Seconds until another event may be written (`defaultSpamQPS` is 1/300).
pub(super) const REFILL: Timestamp = 300;
/// Most objects that are remembered. An object with one event takes about 250 bytes, so all take 16 MiB.
/// client-go remembers 4,096, too few for a larger number of stuck claims.
pub(super) const OBJECTS_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is more than 0");
/// Begin of a combined message.
const COMBINED: &str = "(combined from similar events): ";

/// The events of the objects with the latest events.
pub(super) struct Correlator {
    objects: LruCache<Uid, ObjectEvents>,
    refill: Timestamp,
}

/// A note's event, correlated with earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Correlated {
    /// Identifies the event; the end of its name.
    pub(super) id: u64,
    /// The message, with the prefix of combined messages.
    pub(super) message: String,
    /// Number of notes of the event, including those that were not written.
    pub(super) count: u32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    /// The event must be created: none is known to count this note in.
    pub(super) is_new: bool,
    /// The note is the first of its object and reason.
    pub(super) is_first: bool,
}

struct ObjectEvents {
    normal: Tokens,
    warning: Tokens,
    /// One for each reason; there are about twenty.
    series: Vec<Series>,
}

/// The notes of one object, type and reason.
struct Series {
    event_type: EventType,
    reason: &'static str,
    /// Hashes of the different messages, the oldest first; fewer than [`MESSAGES_MAX`].
    messages: Vec<u64>,
    /// Time of the last note.
    last: Timestamp,
    /// Events, the least recently used first; at most [`MESSAGES_MAX`].
    events: Vec<KnownEvent>,
}

/// An event that is on the API server, or will be.
struct KnownEvent {
    /// Hash of the message; `None` for the combined event.
    message: Option<u64>,
    id: u64,
    count: u32,
    first: Timestamp,
}

/// A token bucket.
struct Tokens {
    left: i64,
    /// When the last token was added.
    since: Timestamp,
}

impl Correlator {
    /// A correlator that admits one more event of an object every `refill` seconds.
    pub(super) fn new(refill: Timestamp) -> Self {
        Self { objects: LruCache::sparse(OBJECTS_MAX), refill }
    }

    /// Counts a note. Notes that are not written count too; the next event that is written shows their
    /// number.
    pub(super) fn observe(&mut self, note: &Note, now: Timestamp) -> Correlated {
        let object = self.objects.get_or_insert_mut_ref(note.regarding.uid(), || ObjectEvents::new(now));
        let found = object.series.iter().position(|series| series.is_of(note));
        let at = found.unwrap_or_else(|| {
            object.series.push(Series::new(note, now));
            object.series.len() - 1
        });
        let correlated = object.series[at].observe(note, now);
        Correlated { is_first: found.is_none(), ..correlated }
    }

    /// Takes a token of the object. Returns whether there was one.
    pub(super) fn take_token(&mut self, note: &Note, now: Timestamp) -> bool {
        let object = self.objects.get_or_insert_mut_ref(note.regarding.uid(), || ObjectEvents::new(now));
        let tokens = match note.event_type {
            EventType::Normal => &mut object.normal,
            EventType::Warning => &mut object.warning,
        };
        tokens.take(now, self.refill)
    }

    /// Forgets a note that was not written: the next one of its object and reason is the first again.
    pub(super) fn forget(&mut self, note: &Note) {
        if let Some(object) = self.objects.peek_mut(note.regarding.uid()) {
            object.series.retain(|series| !series.is_of(note));
        }
    }
}

impl ObjectEvents {
    fn new(now: Timestamp) -> Self {
        let full = || Tokens { left: BURST, since: now };
        Self { normal: full(), warning: full(), series: Vec::new() }
    }
}

impl Series {
    fn new(note: &Note, now: Timestamp) -> Self {
        let (event_type, reason) = (note.event_type, note.reason);
        Self { event_type, reason, messages: Vec::new(), last: now, events: Vec::new() }
    }

    fn is_of(&self, note: &Note) -> bool {
        (self.event_type, self.reason) == (note.event_type, note.reason)
    }

    fn observe(&mut self, note: &Note, now: Timestamp) -> Correlated {
        let message = hash(&note.message);
        let is_combined = self.is_combined(message, now);
        let (message, text) = if is_combined {
            (None, format!("{COMBINED}{}", note.message))
        } else {
            (Some(message), note.message.clone())
        };
        let known = self.events.iter().position(|event| event.message == message);
        let mut event = match known {
            Some(at) => self.events.remove(at),
            None => {
                let id = hash(&(note.regarding.uid(), self.event_type.name(), self.reason, message, now));
                KnownEvent { message, id, count: 0, first: now }
            }
        };
        event.count += 1;
        let (id, count, first) = (event.id, event.count, event.first);
        if self.events.len() >= MESSAGES_MAX {
            self.events.remove(0);
        }
        self.events.push(event);
        Correlated { id, message: text, count, first, last: now, is_new: known.is_none(), is_first: false }
    }

    /// Whether this message is to be combined with others.
    fn is_combined(&mut self, message: u64, now: Timestamp) -> bool {
        if now - self.last > MESSAGES_WITHIN {
            self.messages.clear();
        }
        self.last = now;
        if !self.messages.contains(&message) {
            self.messages.push(message);
        }
        let is_combined = self.messages.len() >= MESSAGES_MAX;
        if is_combined {
            // As in client-go, the set stays just below the limit.
            self.messages.remove(0);
        }
        is_combined
    }
}

impl Tokens {
    fn take(&mut self, now: Timestamp, refill: Timestamp) -> bool {
        // A clock that was set back must not silence the object.
        self.since = self.since.min(now);
        let refilled = (now - self.since) / refill;
        self.left = (self.left + refilled).min(BURST);
        self.since = if self.left == BURST { now } else { self.since + refilled * refill };
        let taken = self.left > 0;
        self.left -= i64::from(taken);
        taken
    }
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use bindery_core::{Regarding, VolumeTarget};

    use super::*;

    fn note(uid: &str, reason: &'static str, message: &str) -> Note {
        Note {
            regarding: Regarding::Volume(VolumeTarget {
                name: "v1".into(),
                uid: uid.into(),
                version: "1".into(),
            }),
            event_type: EventType::Normal,
            reason,
            message: message.to_owned(),
        }
    }

    fn correlator() -> Correlator {
        Correlator::new(REFILL)
    }

    /// The count of a note that may be written; `None` if it may not be.
    fn written(correlator: &mut Correlator, now: Timestamp) -> Option<u32> {
        let note = note("u", "R", "m");
        let correlated = correlator.observe(&note, now);
        correlator.take_token(&note, now).then_some(correlated.count)
    }

    #[test]
    fn a_repeated_entry_is_counted_in_its_event() {
        let mut correlator = correlator();
        let first = correlator.observe(&note("u", "R", "m"), 100);
        assert!(first.is_new && first.is_first);
        let second = correlator.observe(&note("u", "R", "m"), 107);
        assert_eq!((second.id, second.count), (first.id, 2));
        assert_eq!((second.first, second.last), (100, 107));
        assert!(!second.is_new && !second.is_first);
        let text = correlator.observe(&note("u", "R", "other"), 107);
        assert!(text.is_new && !text.is_first);
        for other in [note("other", "R", "m"), note("u", "Other", "m")] {
            let correlated = correlator.observe(&other, 107);
            assert!(correlated.is_new && correlated.is_first && correlated.id != first.id);
        }
        correlator.forget(&note("u", "R", "m"));
        assert!(correlator.observe(&note("u", "R", "m"), 108).is_first);
    }

    #[test]
    fn a_stuck_object_is_silenced_until_tokens_are_added() {
        let mut correlator = correlator();
        let mut written = |now| written(&mut correlator, now);
        assert_eq!((0..100).filter_map(|_| written(1_000)).collect::<Vec<_>>(), Vec::from_iter(1..=25));
        assert_eq!(written(1_299), None);
        // Notes that were not written are counted.
        assert_eq!(written(1_300), Some(102));
        assert_eq!(written(1_300), None);
        assert_eq!((0..100).filter_map(|_| written(1_000_000)).count(), 25);
    }

    #[test]
    fn a_clock_that_is_set_back_silences_no_object() {
        let mut correlator = correlator();
        let mut written = |now| written(&mut correlator, now).is_some();
        assert_eq!((0..100).filter(|_| written(1_000_000)).count(), 25);
        assert!(!written(1_000));
        assert!(!written(1_299));
        assert!(written(1_300));
    }

    #[test]
    fn many_messages_of_one_reason_are_combined() {
        let mut correlator = correlator();
        let mut observed = |message: &str, now| {
            let correlated = correlator.observe(&note("u", "R", message), now);
            (correlated.message, correlated.count)
        };
        for number in 1..10 {
            assert_eq!(observed(&format!("m{number}"), 10), (format!("m{number}"), 1));
        }
        assert_eq!(observed("m10", 11), (format!("{COMBINED}m10"), 1));
        assert_eq!(observed("m11", 12), (format!("{COMBINED}m11"), 2));
        assert_eq!(observed("m12", 12 + 601), ("m12".to_owned(), 1));
    }

    #[test]
    fn the_memory_of_one_object_is_bounded() {
        let mut correlator = correlator();
        for number in 0..100 {
            // So far apart that they are not combined.
            correlator.observe(&note("u", "R", &format!("m{number}")), number * (MESSAGES_WITHIN + 1));
        }
        let object = correlator.objects.peek_mut(&"u".into()).unwrap();
        assert_eq!((object.series.len(), object.series[0].events.len()), (1, MESSAGES_MAX));
    }
}
