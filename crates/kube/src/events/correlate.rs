//! Which events are new, which repeat an earlier one, and which are too many (client-go's `EventCorrelator`,
//! with its numbers; RATIONALE.md says where it differs).

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use bindery_core::{EventType, Timestamp, Uid};

use super::Entry;
use super::recent::Recent;

/// From this many different messages of one reason on, they are combined (`defaultAggregateMaxEvents`).
const MESSAGES_MAX: usize = 10;
/// Within this many seconds (`defaultAggregateIntervalInSeconds`).
const MESSAGES_WITHIN: Timestamp = 600;
/// How many events of one object and type may be written at once (`defaultSpamBurst`).
const BURST: i64 = 25;
/// Seconds until one more may be written (`defaultSpamQPS` is 1/300).
pub(super) const REFILL: Timestamp = 300;
/// Most objects that are remembered. Of each there are some 250 bytes where it has one event, so 16 MiB in
/// all. client-go remembers 4,096, and knows nothing any more of a crowd of stuck claims that is larger.
pub(super) const OBJECTS_MAX: usize = 65_536;
/// What a combined message begins with.
const COMBINED: &str = "(combined from similar events): ";

/// The events of the objects that had events last.
pub(super) struct Correlator {
    objects: Recent<Uid, ObjectEvents>,
    refill: Timestamp,
}

/// A note, correlated with the notes before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Correlated {
    /// Identifies the event, and ends its name.
    pub(super) id: u64,
    /// The message, with the words before it that combined messages have.
    pub(super) message: String,
    /// How often the note was recorded, including the times when nothing was written.
    pub(super) count: u32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    /// No event is known that it could be counted in.
    pub(super) is_new: bool,
    /// It is the first of its object and reason.
    pub(super) is_first: bool,
}

struct ObjectEvents {
    normal: Tokens,
    warning: Tokens,
    /// One for each reason, of which there are some twenty.
    series: Vec<Series>,
}

/// The notes of one object, type and reason.
struct Series {
    event_type: EventType,
    reason: Cow<'static, str>,
    /// Hashes of the different messages, the oldest first; fewer than [`MESSAGES_MAX`].
    messages: Vec<u64>,
    /// When the last note came.
    last: Timestamp,
    /// Its events, the least recently used first; at most [`MESSAGES_MAX`].
    records: Vec<EventRecord>,
}

/// An event as it is or is to be on the API server.
struct EventRecord {
    /// Hash of the message; `None` where messages are combined.
    message: Option<u64>,
    id: u64,
    count: u32,
    first: Timestamp,
}

/// How many events may be written at once.
struct Tokens {
    left: i64,
    /// When the last one was added.
    since: Timestamp,
}

impl Correlator {
    /// A correlator that lets one more event of an object be written each time that so many seconds have
    /// passed.
    pub(super) fn new(refill: Timestamp) -> Self {
        Self { objects: Recent::new(OBJECTS_MAX), refill }
    }

    /// Counts a note. A note that is not written counts too: the next one that is written tells how many
    /// there were.
    pub(super) fn observe(&mut self, entry: &Entry, now: Timestamp) -> Correlated {
        let object = self.objects.get_or_insert_with(entry.regarding.uid(), || ObjectEvents::new(now));
        let found = object.series.iter().position(|series| series.is_of(entry));
        let at = found.unwrap_or_else(|| {
            object.series.push(Series::new(entry, now));
            object.series.len() - 1
        });
        let correlated = object.series[at].observe(entry, now);
        Correlated { is_first: found.is_none(), ..correlated }
    }

    /// Whether one more event of the object may be written now.
    pub(super) fn take_token(&mut self, entry: &Entry, now: Timestamp) -> bool {
        let object = self.objects.get_or_insert_with(entry.regarding.uid(), || ObjectEvents::new(now));
        let tokens = match entry.event_type {
            EventType::Normal => &mut object.normal,
            EventType::Warning => &mut object.warning,
        };
        tokens.take(now, self.refill)
    }

    /// A note was not written after all: the next one of its object and reason is the first again.
    pub(super) fn forget(&mut self, entry: &Entry) {
        if let Some(object) = self.objects.peek_mut(entry.regarding.uid()) {
            object.series.retain(|series| !series.is_of(entry));
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
    fn new(entry: &Entry, now: Timestamp) -> Self {
        let (event_type, reason) = (entry.event_type, entry.reason.clone());
        Self { event_type, reason, messages: Vec::new(), last: now, records: Vec::new() }
    }

    fn is_of(&self, entry: &Entry) -> bool {
        (self.event_type, &self.reason) == (entry.event_type, &entry.reason)
    }

    fn observe(&mut self, entry: &Entry, now: Timestamp) -> Correlated {
        let message = hash(&entry.message);
        let is_combined = self.is_combined(message, now);
        let (message, text) = if is_combined {
            (None, format!("{COMBINED}{}", entry.message))
        } else {
            (Some(message), entry.message.clone())
        };
        let known = self.records.iter().position(|record| record.message == message);
        let mut record = match known {
            Some(at) => self.records.remove(at),
            None => {
                let id = hash(&(entry.regarding.uid(), self.event_type.name(), &self.reason, message, now));
                EventRecord { message, id, count: 0, first: now }
            }
        };
        record.count += 1;
        let (id, count, first) = (record.id, record.count, record.first);
        if self.records.len() >= MESSAGES_MAX {
            self.records.remove(0);
        }
        self.records.push(record);
        Correlated { id, message: text, count, first, last: now, is_new: known.is_none(), is_first: false }
    }

    /// Whether this message is one of too many.
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
            // As client-go does: the set stays just below the limit.
            self.messages.remove(0);
        }
        is_combined
    }
}

impl Tokens {
    fn take(&mut self, now: Timestamp, refill: Timestamp) -> bool {
        // A clock that was set back must not silence the object until it has caught up.
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

    fn entry(uid: &str, reason: &'static str, message: &str) -> Entry {
        Entry {
            regarding: Regarding::Volume(VolumeTarget {
                name: "v1".into(),
                uid: uid.into(),
                version: "1".into(),
            }),
            event_type: EventType::Normal,
            reason: Cow::Borrowed(reason),
            message: message.to_owned(),
        }
    }

    fn correlator() -> Correlator {
        Correlator::new(REFILL)
    }

    /// How often a note was recorded when it may be written; `None` where it may not.
    fn written(correlator: &mut Correlator, now: Timestamp) -> Option<u32> {
        let entry = entry("u", "R", "m");
        let correlated = correlator.observe(&entry, now);
        correlator.take_token(&entry, now).then_some(correlated.count)
    }

    #[test]
    fn a_repeated_note_is_counted_in_its_event() {
        let mut correlator = correlator();
        let first = correlator.observe(&entry("u", "R", "m"), 100);
        assert!(first.is_new && first.is_first);
        let second = correlator.observe(&entry("u", "R", "m"), 107);
        assert_eq!((second.id, second.count), (first.id, 2));
        assert_eq!((second.first, second.last), (100, 107));
        assert!(!second.is_new && !second.is_first);
        let text = correlator.observe(&entry("u", "R", "other"), 107);
        assert!(text.is_new && !text.is_first);
        for other in [entry("other", "R", "m"), entry("u", "Other", "m")] {
            let correlated = correlator.observe(&other, 107);
            assert!(correlated.is_new && correlated.is_first && correlated.id != first.id);
        }
        correlator.forget(&entry("u", "R", "m"));
        assert!(correlator.observe(&entry("u", "R", "m"), 108).is_first);
    }

    #[test]
    fn a_stuck_object_is_silenced_and_heard_again() {
        let mut correlator = correlator();
        let mut written = |now| written(&mut correlator, now);
        assert_eq!((0..100).filter_map(|_| written(1_000)).collect::<Vec<_>>(), Vec::from_iter(1..=25));
        assert_eq!(written(1_299), None);
        // What was not written is counted.
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
        let mut note = |message: &str, now| {
            let correlated = correlator.observe(&entry("u", "R", message), now);
            (correlated.message, correlated.count)
        };
        for number in 1..10 {
            assert_eq!(note(&format!("m{number}"), 10), (format!("m{number}"), 1));
        }
        assert_eq!(note("m10", 11), (format!("{COMBINED}m10"), 1));
        assert_eq!(note("m11", 12), (format!("{COMBINED}m11"), 2));
        assert_eq!(note("m12", 12 + 601), ("m12".to_owned(), 1));
    }

    #[test]
    fn what_is_remembered_of_one_object_is_bounded() {
        let mut correlator = correlator();
        for number in 0..100 {
            // So far apart that they are not combined.
            correlator.observe(&entry("u", "R", &format!("m{number}")), number * (MESSAGES_WITHIN + 1));
        }
        let object = correlator.objects.peek_mut(&"u".into()).unwrap();
        assert_eq!((object.series.len(), object.series[0].records.len()), (1, MESSAGES_MAX));
    }

    #[test]
    fn ten_thousand_objects_that_are_told_of_in_turn_are_remembered() {
        let mut correlator = correlator();
        for round in 0..3 {
            for number in 0..10_000 {
                let correlated = correlator.observe(&entry(&format!("u{number}"), "R", "m"), round);
                assert_eq!(
                    (correlated.is_new, i64::from(correlated.count)),
                    (round == 0, round + 1),
                    "{number}"
                );
            }
        }
    }
}
