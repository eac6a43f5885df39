//! Follows the journals of a folder from a position, also while they are written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::files_of;
use crate::folder::Series;
use crate::{ChainDigest, Entry, Place, ReadError, Reader, What};

/// Reads the entries of all journals of a folder, each entry once, and goes on as they are written.
///
/// [`look`](Self::look) finds the files, and [`next`](Self::next) reads what they have. Files that were
/// removed before they were read are counted, and so are damaged ones.
pub struct Follower {
    folder: PathBuf,
    /// The journals by their names, the next one first.
    journals: Vec<(String, Journal)>,
}

/// How far one journal was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Position {
    /// Number of the file.
    pub file: u64,
    /// [`Followed::header`] of the file; zero before its first entry.
    pub header: u64,
    /// How many of its entries were read.
    pub entries: u64,
    /// Whether nothing more of it will be read: its writer has ended it or begun another, or it is damaged.
    pub is_over: bool,
}

/// An entry with its place.
#[derive(Debug)]
pub struct Followed<'a> {
    /// Name of the journal in the folder.
    pub journal: &'a str,
    /// Number of the file.
    pub file: u64,
    /// The first eight bytes of the digest of the file's header. No other file has them.
    pub header: u64,
    /// Number of the entry in its file, from 1.
    pub number: u64,
    /// The replica that wrote it; `None` in format 1.
    pub replica: Option<&'a str>,
    /// The entry.
    pub entry: Entry,
}

/// The state of one journal.
#[derive(Default)]
struct Journal {
    /// Behind the last entry that was read; `None` before the first.
    position: Option<Position>,
    current: Option<Current>,
    /// The files that were there at the last look, oldest first.
    files: Vec<Found>,
    /// Number and size of a file that ends inside a block. It is read again once it has another size.
    torn: Option<(u64, u64)>,
    /// The last digest of the file that was left, which the next one continues; `None` if it is unknown.
    left: Option<ChainDigest>,
    /// Files up to this number that were not read are counted.
    counted_to: u64,
    lost: u64,
}

/// A file of a journal.
struct Found {
    number: u64,
    size: u64,
    path: PathBuf,
}

/// The file that is read. It can be read to its end even if it is removed meanwhile.
struct Current {
    reader: Reader<BufReader<File>>,
    file: u64,
    header: u64,
    entries: u64,
}

impl Follower {
    /// Follows from these positions; a journal without one is read from its oldest file.
    pub fn new(folder: &Path, positions: BTreeMap<String, Position>) -> Self {
        let journal = |(name, position)| (name, Journal { position: Some(position), ..Journal::default() });
        Self { folder: folder.to_owned(), journals: positions.into_iter().map(journal).collect() }
    }

    /// Finds the files, and those that are missing. The next journal has its turn.
    pub fn look(&mut self) -> io::Result<()> {
        let mut found: BTreeMap<String, Vec<Found>> = BTreeMap::new();
        for path in files_of(&self.folder)? {
            let Some((series, number)) = Series::of(&path) else { continue };
            // It may be removed meanwhile.
            let Ok(metadata) = path.metadata() else { continue };
            found.entry(series.name).or_default().push(Found { number, size: metadata.len(), path });
        }
        for (name, journal) in &mut self.journals {
            journal.files = found.remove(name).unwrap_or_default();
        }
        let new = |(name, files)| (name, Journal { files, ..Journal::default() });
        self.journals.extend(found.into_iter().map(new));
        self.journals.iter_mut().for_each(|(name, journal)| journal.count_missing(name));
        if !self.journals.is_empty() {
            self.journals.rotate_left(1);
        }
        Ok(())
    }

    /// The next entry of the files that were found; `None` if there is none yet.
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot lend what it has")]
    pub fn next(&mut self) -> Option<Followed<'_>> {
        let read = |(at, (name, journal)): (usize, &mut (String, Journal))| Some((at, journal.next(name)?));
        let (at, entry) = self.journals.iter_mut().enumerate().find_map(read)?;
        let (journal, Journal { current, .. }) = &self.journals[at];
        let Current { reader, file, header, entries } = current.as_ref()?;
        let replica = reader.header().map(|header| &*header.replica);
        Some(Followed { journal, file: *file, header: *header, number: *entries, replica, entry })
    }

    /// The positions behind the last entries that were read, by the names of the journals.
    pub fn positions(&self) -> BTreeMap<String, Position> {
        let position = |(name, journal): &(String, Journal)| Some((name.clone(), journal.position?));
        self.journals.iter().filter_map(position).collect()
    }

    /// Number of files that were removed or damaged before all of their entries were read.
    pub fn lost_files(&self) -> u64 {
        self.journals.iter().map(|(_, journal)| journal.lost).sum()
    }
}

impl Journal {
    /// Number of the file that is to be read next, or on; `None` before the first.
    fn wanted(&self) -> Option<u64> {
        match (&self.current, &self.position) {
            (Some(current), _) => Some(current.file + 1),
            (None, Some(position)) => Some(position.file + u64::from(position.is_over)),
            (None, None) => None,
        }
    }

    /// Counts files before the oldest that were not read. A journal that is new begins with its oldest.
    fn count_missing(&mut self, name: &str) {
        let Some(first) = self.files.first().map(|first| first.number) else { return };
        if self.is_replaced() {
            tracing::error!(
                journal = name,
                "the files of this journal are others than before: one or more were removed before they were \
                 sent; the oldest that is there is sent now"
            );
            self.lost += 1;
            (self.position, self.left, self.counted_to) = (None, None, 0);
        }
        match self.wanted() {
            Some(wanted) => self.miss(name, wanted, first),
            None => self.position = Some(Position { file: first, ..Position::default() }),
        }
    }

    /// Whether the files are not those that the position is about.
    fn is_replaced(&self) -> bool {
        let (None, Some(position)) = (&self.current, self.position) else { return false };
        match self.files.iter().find(|found| found.number == position.file) {
            Some(_) if position.header == 0 => false,
            Some(found) => header_of(&found.path).is_some_and(|header| header != position.header),
            None => self.files.last().is_some_and(|last| last.number < position.file),
        }
    }

    /// Counts the files from `wanted` to the one before `found`.
    fn miss(&mut self, name: &str, wanted: u64, found: u64) {
        let first = wanted.max(self.counted_to + 1);
        if found > first {
            self.lost += found - first;
            self.counted_to = found - 1;
            tracing::error!(
                journal = name,
                first,
                last = self.counted_to,
                "files of the journal were removed before all of their records were sent; keep more of them"
            );
        }
    }

    fn next(&mut self, name: &str) -> Option<Entry> {
        loop {
            if self.current.is_none() {
                self.current = Some(self.open(name)?);
            }
            let current = self.current.as_mut()?;
            match current.reader.next() {
                Some(Ok(entry)) => {
                    current.entries += 1;
                    let (is_over, position) = (entry.what == What::End, current.position());
                    let digest = current.reader.digest();
                    if self.has_read(position) && !is_over {
                        continue;
                    }
                    self.position = Some(Position { is_over, ..position });
                    if !is_over {
                        return Some(entry);
                    }
                    (self.current, self.left) = (None, Some(digest));
                }
                Some(Err(ReadError::Unfinished(_))) => self.wait_or_leave(true)?,
                None => self.wait_or_leave(false)?,
                Some(Err(ReadError::Io(error))) => {
                    tracing::warn!(%error, journal = name, file = current.file, "the journal cannot be read");
                    self.current = None;
                    return None;
                }
                Some(Err(damage)) => {
                    let position = current.position();
                    self.give_up(name, position, &damage);
                }
            }
        }
    }

    /// Whether the entry at this position was read before.
    fn has_read(&self, at: Position) -> bool {
        self.position.is_some_and(|position| position.file == at.file && at.entries <= position.entries)
    }

    /// At the end of what a file has: goes to the next one if it is there, and else waits (`None`).
    fn wait_or_leave(&mut self, is_torn: bool) -> Option<()> {
        let Current { file, entries, .. } = *self.current.as_ref()?;
        if self.is_followed(file) {
            let current = self.current.take()?;
            self.left = Some(current.reader.digest());
            let position = current.position();
            let is_known = self.has_read(position);
            let position = self.position.filter(|_| is_known).unwrap_or(position);
            self.position = Some(Position { is_over: true, ..position });
            return Some(());
        }
        if is_torn {
            // What was read of the block is not read again by this reader.
            let size = self.files.iter().find(|found| found.number == file).map(|found| found.size);
            self.torn = size.map(|size| (file, size));
        }
        if is_torn || entries == 0 {
            // A writer removes a file into which it could write no block, and takes the number again.
            self.current = None;
        }
        None
    }

    /// Whether a later file was there at the last look, so that nothing is written to this one any more.
    fn is_followed(&self, file: u64) -> bool {
        self.files.last().is_some_and(|last| last.number > file)
    }

    /// Opens the file that is to be read; `None` if it is not there yet.
    fn open(&mut self, name: &str) -> Option<Current> {
        loop {
            let wanted = self.wanted()?;
            let found = self.files.iter().find(|found| found.number >= wanted)?;
            let &Found { number, size, .. } = found;
            if self.torn == Some((number, size)) && !self.is_followed(number) {
                return None;
            }
            let opened = File::open(&found.path).map_err(ReadError::Io);
            let opened = opened.and_then(|file| Reader::open(BufReader::new(file)));
            self.miss(name, wanted, number);
            if number > wanted {
                self.left = None;
            }
            let unread = Position { file: number, is_over: true, ..Position::default() };
            match opened {
                Ok(reader) => {
                    self.check_continued(name, number, reader.header().map(|header| header.previous));
                    let header = start_of(reader.digest());
                    return Some(Current { reader, file: number, header, entries: 0 });
                }
                Err(ReadError::Empty | ReadError::Unfinished(Place::Header)) => {
                    if !self.is_followed(number) {
                        return None;
                    }
                    self.position = Some(unread);
                }
                // It may be removed meanwhile; the next look finds that.
                Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return None,
                Err(ReadError::Io(error)) => {
                    tracing::error!(journal = name, file = number, %error, "this file cannot be read");
                    return None;
                }
                Err(damage) => self.give_up(name, unread, &damage),
            }
        }
    }

    /// Counts the file that was left if the next one, of this number, continues another end of it.
    fn check_continued(&mut self, name: &str, number: u64, previous: Option<ChainDigest>) {
        if let (Some(left), Some(previous)) = (self.left.take(), previous)
            && left != previous
        {
            self.lost += 1;
            tracing::error!(
                journal = name,
                file = number,
                "the file before this one was cut off or changed; what is missing of it is not sent"
            );
        }
    }

    /// Leaves a file whose rest cannot be read.
    fn give_up(&mut self, name: &str, position: Position, damage: &ReadError) {
        tracing::error!(
            journal = name,
            file = position.file,
            %damage,
            "a file of the journal is damaged; what follows in it is not sent"
        );
        self.lost += 1;
        (self.current, self.left) = (None, None);
        self.position = Some(Position { is_over: true, ..position });
    }
}

impl Current {
    fn position(&self) -> Position {
        Position { file: self.file, header: self.header, entries: self.entries, is_over: false }
    }
}

/// [`Followed::header`] of a file; `None` if it cannot be read.
fn header_of(path: &Path) -> Option<u64> {
    let reader = Reader::open(BufReader::new(File::open(path).ok()?)).ok()?;
    Some(start_of(reader.digest()))
}

fn start_of(digest: ChainDigest) -> u64 {
    let bytes = digest.bytes().first_chunk().copied();
    u64::from_be_bytes(bytes.unwrap_or_default())
}
