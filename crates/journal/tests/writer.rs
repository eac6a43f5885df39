//! The thread that writes a journal. A disk that fails, is full or does not answer delays no caller. Lost
//! records are counted and reported.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
mod support;

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bindery_journal::{Counts, Entry, Files, Gap, JournalWriter, Record, Sink, What, Written};

use self::support::{entry, folder_writer, record, rotation};

/// Longer than any of these journals takes to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a large record.
const LARGE: usize = 4 << 20;
/// More large records than fit into the queue.
const MANY: usize = 40;

/// A disk in memory that works while it is told so.
#[derive(Clone, Default)]
struct Disk {
    blocks: Arc<Mutex<Vec<Vec<u8>>>>,
    works: Arc<Mutex<bool>>,
}

impl Sink for Disk {
    fn write(&mut self, plain: &[u8]) -> io::Result<Written> {
        if !*self.works.lock().unwrap() {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.blocks.lock().unwrap().push(plain.to_owned());
        Ok(Written { bytes: plain.len() as u64, removed: 0 })
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> Option<u64> {
        Some(7)
    }
}

impl Disk {
    /// The gaps, and the number of other entries that were written.
    fn gaps(&self) -> (Vec<Gap>, u64) {
        let (mut gaps, mut others) = (Vec::new(), 0);
        for block in &*self.blocks.lock().unwrap() {
            let mut rest = &block[..];
            while !rest.is_empty() {
                let (entry, after) = Entry::decode(rest).unwrap();
                match entry.what {
                    What::Gap(gap) => gaps.push(gap),
                    _ => others += 1,
                }
                rest = after;
            }
        }
        (gaps, others)
    }
}

fn large() -> What {
    let mut record = record("a");
    record.evidence.engine = "x".repeat(LARGE);
    What::Decision(Box::new(record))
}

/// Waits for a condition that the thread brings about.
fn until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

fn adds_up(counts: Counts) -> bool {
    counts.made == counts.written + counts.lost
}

#[test]
fn everything_is_written_before_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let writer = JournalWriter::start(folder_writer(folder.path(), rotation(1 << 16, 1 << 30))).unwrap();
    let names: Vec<String> = (0..5_000).map(|number| format!("v{number}")).collect();
    names.iter().for_each(|name| writer.appender().append(entry(name).what));
    let counts = writer.finish(PATIENCE);
    assert_eq!((counts.made, counts.written, counts.lost), (5_000, 5_000, 0));
    assert!(!counts.failing && counts.free.is_some() && counts.bytes > 0);
    let read: Vec<Entry> = Files::open(folder.path()).unwrap().map(Result::unwrap).collect();
    let names = |entries: &[Entry]| -> Vec<Record> {
        let decision = |entry: &Entry| match &entry.what {
            What::Decision(record) => (**record).clone(),
            other => panic!("{other:?}"),
        };
        entries.iter().map(decision).collect()
    };
    let written: Vec<Entry> = (0..5_000).map(|number| entry(&format!("v{number}"))).collect();
    assert_eq!(names(&read), names(&written));
}

#[test]
fn records_appear_without_an_end_and_none_is_written_twice() {
    let folder = tempfile::tempdir().unwrap();
    let writer = JournalWriter::start(folder_writer(folder.path(), rotation(1 << 30, 1 << 30))).unwrap();
    for count in 1..=2 {
        writer.appender().append(entry("a").what);
        until("the record is in the file", || writer.appender().counts().written == count);
        assert_eq!(Files::open(folder.path()).unwrap().count() as u64, count);
    }
}

#[test]
fn what_a_full_disk_loses_is_counted_and_told_once_there_is_room() {
    let disk = Disk::default();
    let writer = JournalWriter::start(disk.clone()).unwrap();
    let appender = writer.appender();
    for _ in 0..MANY {
        appender.append(large());
    }
    let counts = appender.counts();
    assert!(counts.made == MANY as u64 && counts.written == 0 && counts.lost > 0, "{counts:?}");
    until("the failure is told", || appender.counts().failing);
    *disk.works.lock().unwrap() = true;
    until("the rest is written", || adds_up(appender.counts()));
    appender.append(entry("b").what);
    let counts = writer.finish(PATIENCE);
    assert!(adds_up(counts) && !counts.failing && counts.free == Some(7), "{counts:?}");
    let (gaps, others) = disk.gaps();
    assert_eq!(others, counts.written);
    assert_eq!(gaps.iter().map(|gap| gap.lost).sum::<u64>(), counts.lost);
    assert!(gaps.iter().all(|gap| gap.from_ms <= gap.to_ms));
}

#[test]
fn a_disk_that_is_full_to_the_end_loses_all_that_waits() {
    let disk = Disk::default();
    let writer = JournalWriter::start(disk.clone()).unwrap();
    (0..100).for_each(|_| writer.appender().append(entry("a").what));
    let late = writer.appender();
    let counts = writer.finish(PATIENCE);
    assert_eq!((counts.made, counts.written, counts.lost), (100, 0, 100));
    late.append(entry("late").what);
    assert_eq!((late.counts().made, late.counts().lost), (101, 101));
}

#[test]
fn a_record_that_is_too_large_is_lost_alone() {
    let disk = Disk { works: Arc::new(Mutex::new(true)), ..Disk::default() };
    let writer = JournalWriter::start(disk.clone()).unwrap();
    let mut huge = record("a");
    huge.evidence.engine = "x".repeat(17 << 20);
    writer.appender().append(What::Decision(Box::new(huge)));
    writer.appender().append(entry("b").what);
    let counts = writer.finish(PATIENCE);
    assert_eq!((counts.written, counts.lost), (1, 1));
    assert_eq!((disk.gaps().0[0].lost, disk.gaps().1), (1, 1));
}

/// A disk that does not answer until it is told to.
struct Hanging(Receiver<()>, Sender<()>);

impl Sink for Hanging {
    fn write(&mut self, _: &[u8]) -> io::Result<Written> {
        self.1.send(()).unwrap();
        _ = self.0.recv();
        Ok(Written::default())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

#[test]
fn a_disk_that_does_not_answer_holds_up_neither_records_nor_the_end() {
    let ((release, released), (asked, has_asked)) = (channel(), channel());
    let writer = JournalWriter::start(Hanging(released, asked)).unwrap();
    writer.appender().append(large());
    has_asked.recv().unwrap();
    (0..MANY).for_each(|_| writer.appender().append(large()));
    let counts = writer.finish(Duration::from_millis(1));
    assert!(counts.made == 1 + MANY as u64 && counts.written == 0 && counts.lost > 0, "{counts:?}");
    drop(release);
}
