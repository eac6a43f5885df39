//! Which events are new, which repeat an earlier one, and which are too many (client-go's `EventCorrelator`,
//! with its numbers).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use bindery_core::{EventType, Regarding, Timestamp, Uid};

use super::Entry;

/// From this many different messages of one reason on, they are combined (`defaultAggregateMaxEvents`).
const MESSAGES_MAX: usize = 10;
/// Within this many seconds (`defaultAggregateIntervalInSeconds`).
const MESSAGES_WITHIN: Timestamp = 600;
/// How many events of one object and type may be written at once (`defaultSpamBurst`).
const BURST: i64 = 25;
/// Seconds until one more may be written (`defaultSpamQPS` is 1/300).
const REFILL: Timestamp = 300;
/// Most entries that each table keeps (`maxLruCacheEntries`).
const ENTRIES_MAX: usize = 4_096;
/// What a combined message begins with.
const COMBINED: &str = "(combined from similar events): ";

#[derive(Default)]
pub(super) struct Correlator {
    records: HashMap<RecordKey, Record>,
    series: HashMap<Series, Messages>,
    buckets: HashMap<Bucket, Tokens>,
}

/// What is to be done with a note.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Write it as a new event.
    Create(Record),
    /// Count it in an event that was written.
    Repeat(Record),
    /// Write nothing.
    Suppress,
}

/// An event as it is or is to be on the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    key: RecordKey,
    pub(super) name: String,
    pub(super) message: String,
    pub(super) count: u32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

/// What makes two notes the same event; no message where messages are combined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RecordKey {
    series: Series,
    message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Series {
    bucket: Bucket,
    reason: Cow<'static, str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Bucket {
    object: Uid,
    warning: bool,
}

struct Messages {
    seen: HashSet<u64>,
    last: Timestamp,
}

struct Tokens {
    left: i64,
    since: Timestamp,
}

impl Correlator {
    pub(super) fn correlate(&mut self, entry: &Entry, now: Timestamp) -> Verdict {
        let bucket =
            Bucket { object: uid(&entry.regarding).clone(), warning: entry.event_type == EventType::Warning };
        let series = Series { bucket: bucket.clone(), reason: entry.reason.clone() };
        let combined = self.is_combined(&series, &entry.message, now);
        // It counts though it is not written: the next one that is written tells how many there were.
        let verdict = self.observe(entry, series, combined, now);
        if self.take_token(bucket, now) { verdict } else { Verdict::Suppress }
    }

    fn observe(&mut self, entry: &Entry, series: Series, combined: bool, now: Timestamp) -> Verdict {
        let message = if combined { format!("{COMBINED}{}", entry.message) } else { entry.message.clone() };
        let key = RecordKey { series, message: (!combined).then(|| entry.message.clone()) };
        if let Some(record) = self.records.get_mut(&key) {
            record.count += 1;
            (record.last, record.message) = (now, message);
            return Verdict::Repeat(record.clone());
        }
        let name = event_name(name(&entry.regarding), &key, now);
        let record = Record { key: key.clone(), name, message, count: 1, first: now, last: now };
        self.records.insert(key, record.clone());
        evict(&mut self.records, |record| record.last);
        Verdict::Create(record)
    }

    /// The event was not written after all.
    pub(super) fn forget(&mut self, record: &Record) {
        self.records.remove(&record.key);
    }

    fn is_combined(&mut self, series: &Series, message: &str, now: Timestamp) -> bool {
        let entry = self.series.entry(series.clone());
        let messages = entry.or_insert_with(|| Messages { seen: HashSet::new(), last: now });
        if now - messages.last > MESSAGES_WITHIN {
            messages.seen.clear();
        }
        messages.last = now;
        messages.seen.insert(hash(message));
        let combined = messages.seen.len() >= MESSAGES_MAX;
        if combined && let Some(one) = messages.seen.iter().next().copied() {
            // As client-go does: the set stays just below the limit.
            messages.seen.remove(&one);
        }
        evict(&mut self.series, |messages| messages.last);
        combined
    }

    fn take_token(&mut self, bucket: Bucket, now: Timestamp) -> bool {
        let tokens = self.buckets.entry(bucket).or_insert(Tokens { left: BURST, since: now });
        let refilled = ((now - tokens.since) / REFILL).max(0);
        tokens.left = (tokens.left + refilled).min(BURST);
        tokens.since = if tokens.left == BURST { now } else { tokens.since + refilled * REFILL };
        let taken = tokens.left > 0;
        tokens.left -= i64::from(taken);
        evict(&mut self.buckets, |tokens| tokens.since);
        taken
    }
}

/// Drops the oldest quarter of a table that has grown too large, so that most insertions cost nothing.
fn evict<K: Clone + Eq + Hash, V>(table: &mut HashMap<K, V>, age: impl Fn(&V) -> Timestamp) {
    if table.len() <= ENTRIES_MAX {
        return;
    }
    let mut ages: Vec<Timestamp> = table.values().map(&age).collect();
    let (_, limit, _) = ages.select_nth_unstable(ENTRIES_MAX / 4);
    let limit = *limit;
    let mut surplus = table.len() - ENTRIES_MAX * 3 / 4;
    table.retain(|_, value| {
        let old = surplus > 0 && age(value) <= limit;
        surplus -= usize::from(old);
        !old
    });
}

fn uid(regarding: &Regarding) -> &Uid {
    match regarding {
        Regarding::Claim(claim) => &claim.uid,
        Regarding::Volume(volume) => &volume.uid,
    }
}

fn name(regarding: &Regarding) -> &str {
    match regarding {
        Regarding::Claim(claim) => &claim.key.name,
        Regarding::Volume(volume) => &volume.name,
    }
}

/// `<object>.<16 hexadecimal digits>`, as client-go names events: unique by what it says and when.
fn event_name(object: &str, key: &RecordKey, now: Timestamp) -> String {
    // A name has at most 253 characters; the rest is a dot and the digits.
    let object = object.get(..object.len().min(236)).unwrap_or_default().trim_end_matches(['.', '-']);
    format!("{object}.{:016x}", hash(&(key, now)))
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use bindery_core::VolumeTarget;

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

    #[test]
    fn a_repeated_note_is_counted_in_its_event() {
        let mut correlator = Correlator::default();
        let Verdict::Create(first) = correlator.correlate(&entry("u", "R", "m"), 100) else {
            panic!("the first note makes an event");
        };
        let Verdict::Repeat(second) = correlator.correlate(&entry("u", "R", "m"), 107) else {
            panic!("the second note is counted");
        };
        assert_eq!((second.name.as_str(), second.count), (first.name.as_str(), 2));
        assert_eq!((second.first, second.last), (100, 107));
        assert!(matches!(correlator.correlate(&entry("other", "R", "m"), 107), Verdict::Create(_)));
        assert!(matches!(correlator.correlate(&entry("u", "Other", "m"), 107), Verdict::Create(_)));
    }

    #[test]
    fn a_stuck_object_is_silenced_and_heard_again() {
        let mut correlator = Correlator::default();
        let mut written = |now| match correlator.correlate(&entry("u", "R", "m"), now) {
            Verdict::Create(record) | Verdict::Repeat(record) => Some(record.count),
            Verdict::Suppress => None,
        };
        assert_eq!((0..100).filter_map(|_| written(1_000)).collect::<Vec<_>>(), Vec::from_iter(1..=25));
        assert_eq!(written(1_299), None);
        // What was not written is counted.
        assert_eq!(written(1_300), Some(102));
        assert_eq!(written(1_300), None);
        assert_eq!((0..100).filter_map(|_| written(1_000_000)).count(), 25);
    }

    #[test]
    fn many_messages_of_one_reason_are_combined() {
        let mut correlator = Correlator::default();
        let mut note = |message: &str, now| match correlator.correlate(&entry("u", "R", message), now) {
            Verdict::Create(record) | Verdict::Repeat(record) => (record.message, record.count),
            Verdict::Suppress => panic!("not that many"),
        };
        for number in 1..10 {
            assert_eq!(note(&format!("m{number}"), 10), (format!("m{number}"), 1));
        }
        assert_eq!(note("m10", 11), (format!("{COMBINED}m10"), 1));
        assert_eq!(note("m11", 12), (format!("{COMBINED}m11"), 2));
        assert_eq!(note("m12", 12 + 601), ("m12".to_owned(), 1));
    }

    #[test]
    fn tables_stay_bounded() {
        let mut correlator = Correlator::default();
        for number in 0..3 * ENTRIES_MAX {
            correlator.correlate(&entry(&format!("u{number}"), "R", "m"), 0);
        }
        assert!(correlator.records.len() <= ENTRIES_MAX);
        assert!(correlator.series.len() <= ENTRIES_MAX);
        assert!(correlator.buckets.len() <= ENTRIES_MAX);
    }
}
