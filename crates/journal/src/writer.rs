//! Writes a journal from a thread of its own, so that neither a slow disk nor a full one delays a decision.
//!
//! Records wait in a [`Queue`] of limited size until a block of them is due, within a second. While the disk
//! fails, the block that could not be written is kept and tried again, and the queue fills up; records that
//! do not fit are lost, counted, and told of by a [`Gap`] once there is room. What waits is in memory only: a
//! process that is killed loses it.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::folder::now_ms;
use crate::queue::Queue;
use crate::{Entry, Gap, What};

/// Written blocks are forced to the disk when the first of them is this old: so much may be lost with the
/// machine. More often would delay others that share the disk.
const SYNC_AGE: Duration = Duration::from_secs(5);
/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);
/// Shortest time between two log lines about the same trouble.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Where blocks go. A [`crate::FolderWriter`], or a double in tests.
pub trait Sink: Send {
    /// Appends a block of records.
    ///
    /// # Errors
    ///
    /// Nothing of the block was appended, and it may be given again.
    fn write(&mut self, plain: &[u8]) -> io::Result<Written>;

    /// Forces what was written to the disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Ends the journal after the last block.
    fn end(&mut self) -> io::Result<()>;

    /// Bytes that are free; `None` if that is unknown.
    fn free_bytes(&self) -> Option<u64>;
}

/// What a write did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the block.
    pub bytes: u64,
    /// Number of files that were removed since the start, because they are the oldest.
    pub removed: u64,
}

/// Counts of a journal since the start. Records that were made are written, lost, or wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that were made, without those about gaps.
    pub made: u64,
    /// Those of them that are in the files.
    pub written: u64,
    /// Those of them that never will be.
    pub lost: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Files that were removed because they were the oldest.
    pub removed: u64,
    /// Bytes that are free in the folder; `None` before the first write.
    pub free: Option<u64>,
    /// Whether the last write failed.
    pub failing: bool,
}

/// A journal that is being written.
pub struct JournalWriter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    ended: Receiver<()>,
}

/// Appends records to a journal. Clones append to the same one.
#[derive(Clone)]
pub struct Appender(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Queue,
    made: AtomicU64,
    written: AtomicU64,
    lost: AtomicU64,
    bytes: AtomicU64,
    removed: AtomicU64,
    /// `u64::MAX` while it is unknown.
    free: AtomicU64,
    failing: AtomicBool,
    /// What was lost and is not written down yet.
    gap: Mutex<Option<Gap>>,
    loss_logged: Mutex<Option<Instant>>,
}

/// The records of the next block.
#[derive(Default)]
struct Block {
    plain: Vec<u8>,
    records: u64,
}

/// The thread that writes.
struct Worker<S> {
    sink: S,
    shared: Arc<Shared>,
    block: Block,
    /// When the first of the blocks was written that may not be on the disk yet.
    unsynced: Option<Instant>,
    failure_logged: Option<Instant>,
}

impl JournalWriter {
    /// Starts the thread.
    pub fn start(sink: impl Sink + 'static) -> io::Result<Self> {
        let (end, ended) = mpsc::channel();
        let shared = Arc::new(Shared { free: AtomicU64::new(u64::MAX), ..Shared::default() });
        let (block, unsynced, failure_logged) = (Block::default(), None, None);
        let worker = Worker { sink, shared: Arc::clone(&shared), block, unsynced, failure_logged };
        let thread = std::thread::Builder::new().name("journal".to_owned()).spawn(move || {
            worker.run();
            // Nobody waits for it any more if the time was over.
            _ = end.send(());
        })?;
        Ok(Self { shared, thread: Some(thread), ended })
    }

    /// Appends to it.
    pub fn appender(&self) -> Appender {
        Appender(Arc::clone(&self.shared))
    }

    /// Takes no further records, and waits until all are written, but no longer than `patience`. Returns the
    /// counts; records that still wait are lost with the process.
    pub fn finish(mut self, patience: Duration) -> Counts {
        self.shared.queue.end();
        if let Some(thread) = self.thread.take() {
            // It may pause after a failed write.
            thread.thread().unpark();
        }
        if self.ended.recv_timeout(patience).is_err() {
            tracing::error!("the disk of the journal does not answer; the last records are lost");
        }
        self.shared.counts()
    }
}

impl Appender {
    /// Appends a record, or counts it as lost if too many wait. Never blocks.
    pub fn append(&self, what: What) {
        self.0.append(&Entry { at_ms: now_ms(), what });
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }
}

impl Shared {
    fn append(&self, entry: &Entry) {
        self.made.fetch_add(1, Ordering::Relaxed);
        let bytes = match entry.encode() {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::error!(%error, "a record of the journal is too large");
                return self.lose(1, entry.at_ms);
            }
        };
        if !self.queue.push(bytes) {
            self.lose(1, entry.at_ms);
        }
    }

    fn lose(&self, records: u64, at_ms: u64) {
        self.lost.fetch_add(records, Ordering::Relaxed);
        let mut gap = self.gap.lock();
        let gap = gap.get_or_insert(Gap { lost: 0, from_ms: at_ms, to_ms: at_ms });
        gap.lost += records;
        gap.to_ms = at_ms;
        if may_log(&mut self.loss_logged.lock()) {
            tracing::error!(
                lost = self.lost.load(Ordering::Relaxed),
                "records of the journal are lost: the disk is too slow, full or failing; binding goes on"
            );
        }
    }

    fn counts(&self) -> Counts {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        // In this order, so that no more are written and lost than were made.
        let (written, lost) = (get(&self.written), get(&self.lost));
        Counts {
            made: get(&self.made),
            written,
            lost,
            bytes: get(&self.bytes),
            removed: get(&self.removed),
            free: Some(get(&self.free)).filter(|free| *free != u64::MAX),
            failing: self.failing.load(Ordering::Relaxed),
        }
    }
}

impl<S: Sink> Worker<S> {
    fn run(mut self) {
        let mut may_more_come = true;
        while may_more_come {
            let sync = self.unsynced.map(|since| since + SYNC_AGE);
            may_more_come = self.shared.queue.take_block(sync, |record| self.block.add(record));
            self.flush();
            if self.unsynced.is_some_and(|since| since.elapsed() >= SYNC_AGE) {
                self.sync();
            }
        }
        if let Err(error) = self.sink.end() {
            tracing::warn!(%error, "the journal may have no end record on the disk");
        }
    }

    /// Writes the block, and tries until it is written. At the end of the journal it tries once.
    fn flush(&mut self) {
        if let Some(gap) = self.shared.gap.lock().take() {
            self.block.add_gap(gap);
        }
        while !self.block.plain.is_empty() {
            let result = self.sink.write(&self.block.plain);
            let free = self.sink.free_bytes().unwrap_or(u64::MAX);
            self.shared.free.store(free, Ordering::Relaxed);
            self.shared.failing.store(result.is_err(), Ordering::Relaxed);
            match result {
                Ok(written) => {
                    if self.failure_logged.take().is_some() {
                        tracing::warn!("the journal is written again");
                    }
                    let Block { records, .. } = mem::take(&mut self.block);
                    self.shared.written.fetch_add(records, Ordering::Relaxed);
                    self.shared.bytes.fetch_add(written.bytes, Ordering::Relaxed);
                    self.shared.removed.store(written.removed, Ordering::Relaxed);
                    self.unsynced.get_or_insert_with(Instant::now);
                }
                Err(error) => {
                    if may_log(&mut self.failure_logged) {
                        tracing::error!(%error, "the journal cannot be written; it is tried every second");
                    }
                    if self.shared.queue.has_ended() {
                        let Block { records, .. } = mem::take(&mut self.block);
                        self.shared.lose(records, now_ms());
                    } else {
                        std::thread::park_timeout(RETRY);
                    }
                }
            }
        }
    }

    fn sync(&mut self) {
        self.unsynced = None;
        if let Err(error) = self.sink.sync()
            && may_log(&mut self.failure_logged)
        {
            tracing::error!(%error, "the journal cannot be forced to the disk");
        }
    }
}

impl Block {
    /// Adds a record; returns the bytes so far.
    fn add(&mut self, record: &[u8]) -> usize {
        self.plain.extend_from_slice(record);
        self.records += 1;
        self.plain.len()
    }

    /// Says before the next records that some are missing. A gap is not a record that was made.
    fn add_gap(&mut self, gap: Gap) {
        let entry = Entry { at_ms: now_ms(), what: What::Gap(gap) };
        if let Ok(bytes) = entry.encode() {
            self.plain.splice(0..0, bytes);
        }
    }
}

/// Whether to log again what has been logged before: once a minute. Notes that it is logged.
pub fn may_log(logged: &mut Option<Instant>) -> bool {
    let is_due = logged.is_none_or(|logged| logged.elapsed() >= LOG_EVERY);
    if is_due {
        *logged = Some(Instant::now());
    }
    is_due
}
