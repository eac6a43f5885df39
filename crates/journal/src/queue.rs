//! The records of a journal that wait to be written, until a block of them is due.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::block::BLOCK_BYTES;

/// Most bytes of records that wait: protects the memory of the process from a disk that does not answer. It
/// is two seconds of 20,000 decisions a second.
const WAITING_MAX: usize = 64 << 20;
/// What a waiting record takes beside its bytes.
const RECORD_OVERHEAD: usize = 64;
/// A block is due when the first of its records is this old.
const BLOCK_AGE: Duration = Duration::from_millis(800);

/// The queue. One thread takes records; it is not woken for each.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// There is a first record, or a whole block of them, or the queue has ended.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    records: VecDeque<Vec<u8>>,
    /// Bytes of memory that they take.
    bytes: usize,
    /// When the oldest of them came, or one before it.
    since: Option<Instant>,
    /// It takes no further records.
    ended: bool,
}

impl Queue {
    /// Adds a record. Returns whether it was taken: too many may wait, and the queue may have ended.
    pub(crate) fn push(&self, record: Vec<u8>) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.ended || waiting.bytes >= WAITING_MAX {
            return false;
        }
        let (was_empty, had_block) = (waiting.records.is_empty(), waiting.bytes >= BLOCK_BYTES);
        waiting.bytes += record.len() + RECORD_OVERHEAD;
        waiting.records.push_back(record);
        waiting.since.get_or_insert_with(Instant::now);
        if was_empty || (!had_block && waiting.bytes >= BLOCK_BYTES) {
            self.changed.notify_one();
        }
        true
    }

    /// Takes no further records.
    pub(crate) fn end(&self) {
        self.waiting.lock().ended = true;
        self.changed.notify_one();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.waiting.lock().ended
    }

    /// Waits until a block is due, or until this moment, and takes its records by this function, which
    /// returns the bytes of the block so far. Returns whether more records may come.
    pub(crate) fn take_block(&self, until: Option<Instant>, mut take: impl FnMut(&[u8]) -> usize) -> bool {
        let mut waiting = self.waiting.lock();
        while !waiting.ended {
            match [waiting.due(), until].into_iter().flatten().min() {
                Some(due) if due <= Instant::now() => break,
                Some(due) => _ = self.changed.wait_until(&mut waiting, due),
                None => self.changed.wait(&mut waiting),
            }
        }
        while let Some(record) = waiting.records.pop_front() {
            waiting.bytes -= record.len() + RECORD_OVERHEAD;
            if take(&record) >= BLOCK_BYTES {
                break;
            }
        }
        if waiting.records.is_empty() {
            waiting.since = None;
        }
        !waiting.ended || !waiting.records.is_empty()
    }
}

impl Waiting {
    /// When a block is due; `None` while no record waits.
    fn due(&self) -> Option<Instant> {
        let age = if self.bytes >= BLOCK_BYTES { Duration::ZERO } else { BLOCK_AGE };
        self.since.map(|since| since + age)
    }
}
