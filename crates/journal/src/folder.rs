//! Writes a journal into a folder. Files have a limited size and age, and the oldest are removed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::block::BlockEncoder;
use crate::writer::{Sink, Written};
use crate::{ChainDigest, Entry, Header, Reader, What};

/// The end of a file's name.
const EXTENSION: &str = "bjournal";
/// Most journals in one folder: more than a Deployment has replicas.
const SERIES_MAX: u32 = 64;
/// Files and folders are for the user of the process alone: a journal tells names and labels of all tenants.
const FILE_MODE: u32 = 0o600;

/// When a file is ended, and how much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// A file of more bytes is ended.
    pub size: u64,
    /// An older file is ended when the next block is written.
    pub age: Duration,
    /// Most bytes of all files of this journal together; the oldest are removed. The file that is written is
    /// never removed.
    pub keep: u64,
}

/// The files of one journal: of one replica after the other, one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
}

/// Appends blocks to the files of a journal.
///
/// It takes the first journal of the folder that no other process writes, and continues its chain in a new
/// file. So replicas may share a folder, and a replica that starts again continues a journal.
pub struct FolderWriter {
    folder: PathBuf,
    rotation: Rotation,
    /// The header of the next file; its digest is that of the last whole block.
    header: Header,
    taken: Option<Taken>,
    current: Option<Current>,
    removed: u64,
}

/// A journal that no other process writes.
struct Taken {
    series: Series,
    /// Locked for as long as it is open.
    _lock: File,
    /// Whether the end of the last file was found.
    is_continued: bool,
}

/// The file that is written.
struct Current {
    path: PathBuf,
    file: File,
    encoder: BlockEncoder,
    bytes: u64,
    began: Instant,
    /// The digest that the header continues, while the file has no block.
    continues: Option<ChainDigest>,
}

impl Series {
    /// The series and the number of a file; `None` if it is not a file of a journal.
    pub(crate) fn of(path: &Path) -> Option<(Self, u64)> {
        let stem = path.file_name()?.to_str()?.strip_suffix(EXTENSION)?.strip_suffix('.')?;
        let (name, number) = stem.rsplit_once('-')?;
        let is_number = number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse().ok().filter(|_| is_number && !name.is_empty())?;
        Some((Self { folder: path.parent()?.to_owned(), name: name.to_owned() }, number))
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{}-{number:08}.{EXTENSION}", self.name))
    }

    /// Numbers, sizes and paths of its files, oldest first.
    fn files(&self) -> io::Result<Vec<(u64, u64, PathBuf)>> {
        let mut found = Vec::new();
        for entry in self.folder.read_dir()? {
            let entry = entry?;
            let path = entry.path();
            if let Some((_, number)) = Self::of(&path).filter(|(series, _)| series == self) {
                found.push((number, entry.metadata()?.len(), path));
            }
        }
        found.sort();
        Ok(found)
    }
}

impl FolderWriter {
    /// A writer into this folder, which is created if it is missing. `header` names the writer; its number,
    /// digest and time are set for each file.
    pub fn new(folder: &Path, rotation: Rotation, header: Header) -> Self {
        let folder = folder.to_owned();
        Self { folder, rotation, header, taken: None, current: None, removed: 0 }
    }

    /// Creates the folder if it is missing, and takes a journal in it.
    pub fn take(&mut self) -> io::Result<()> {
        if self.taken.is_some() {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        for number in 1..=SERIES_MAX {
            let series = Series { folder: self.folder.clone(), name: format!("replica-{number}") };
            let path = self.folder.join(format!("{}.lock", series.name));
            let lock = OpenOptions::new().create(true).append(true).mode(FILE_MODE).open(path)?;
            match lock.try_lock() {
                Ok(()) => {
                    self.taken = Some(Taken { series, _lock: lock, is_continued: false });
                    return Ok(());
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::Error::other(format!("{SERIES_MAX} other processes write journals there")))
    }

    /// Finds the end of the last file, whose chain the next one continues.
    fn find_end(&mut self) -> io::Result<Series> {
        self.take()?;
        let taken = self.taken.as_mut().ok_or_else(|| io::Error::other("no journal was taken"))?;
        if !taken.is_continued {
            let files = taken.series.files()?;
            self.header.number = files.last().map_or(1, |(number, ..)| number + 1);
            for (_, _, path) in files.iter().rev() {
                // A file that its writer has only begun has no block.
                let Ok(reader) = Reader::open(io::BufReader::new(File::open(path)?)) else { continue };
                let (digest, damage) = reader.scan();
                if let Some(damage) = damage {
                    tracing::warn!(file = %path.display(), %damage, "the journal goes on in a new file");
                }
                self.header.previous = digest;
                break;
            }
            taken.is_continued = true;
        }
        Ok(taken.series.clone())
    }

    /// Begins the next file.
    fn begin(&mut self) -> io::Result<Current> {
        let series = self.find_end()?;
        self.remove_oldest(&series)?;
        self.header.began_ms = now_ms();
        let (encoder, first) = BlockEncoder::new(&self.header)?;
        let path = series.path(self.header.number);
        let mut file = OpenOptions::new().create_new(true).append(true).mode(FILE_MODE).open(&path)?;
        let continues = Some(self.header.previous);
        self.header.number += 1;
        // So that the file is there after a power loss.
        let is_begun = file.write_all(&first).and_then(|()| File::open(&series.folder)?.sync_all());
        self.header.previous = encoder.chain();
        let (bytes, began) = (first.len() as u64, Instant::now());
        let current = Current { path, file, encoder, bytes, began, continues };
        match is_begun {
            Ok(()) => Ok(current),
            Err(error) => {
                self.give_up(current);
                Err(error)
            }
        }
    }

    /// Leaves a file after a failed write. One without a block is removed, so that a disk that fails for long
    /// is not filled with them.
    fn give_up(&mut self, Current { path, file, bytes, continues, .. }: Current) {
        match continues {
            Some(previous) if fs::remove_file(path).is_ok() => {
                self.header.number -= 1;
                self.header.previous = previous;
            }
            // Cuts off a block that was written in part. If that fails, readers report it as unfinished.
            _ => _ = file.set_len(bytes),
        }
    }

    /// Removes the oldest files until a new file of full size fits.
    fn remove_oldest(&mut self, series: &Series) -> io::Result<()> {
        let files = series.files()?;
        let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in files {
            if total + self.rotation.size <= self.rotation.keep {
                break;
            }
            fs::remove_file(path)?;
            total -= size;
            self.removed += 1;
        }
        Ok(())
    }

    fn append(&mut self, plain: &[u8]) -> io::Result<u64> {
        let mut current = match self.current.take() {
            Some(current) => current,
            None => self.begin()?,
        };
        let written = current.encoder.block(plain).and_then(|block| {
            current.file.write_all(&block)?;
            Ok(block.len() as u64)
        });
        match written {
            Ok(bytes) => {
                self.header.previous = current.encoder.chain();
                current.bytes += bytes;
                current.continues = None;
                self.current = Some(current);
            }
            Err(_) => self.give_up(current),
        }
        written
    }

    /// Ends the file that is written, if there is one.
    fn end_file(&mut self) -> io::Result<()> {
        if self.current.is_some() {
            let end = Entry { at_ms: now_ms(), what: What::End };
            self.append(&end.encode().map_err(io::Error::other)?)?;
        }
        let synced = self.sync();
        // Readers look for nothing behind the end, also where the disk has not taken it.
        self.current = None;
        synced
    }
}

impl Sink for FolderWriter {
    fn write(&mut self, plain: &[u8]) -> io::Result<Written> {
        let is_full = |current: &Current| {
            current.bytes >= self.rotation.size || current.began.elapsed() >= self.rotation.age
        };
        if self.current.as_ref().is_some_and(is_full)
            && let Err(error) = self.end_file()
        {
            // The next file's header says where this one ends.
            tracing::warn!(%error, "a file of the journal may have no end record on the disk");
        }
        let bytes = self.append(plain)?;
        Ok(Written { bytes, removed: self.removed })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.current.as_ref().map_or(Ok(()), |current| current.file.sync_data())
    }

    fn end(&mut self) -> io::Result<()> {
        self.end_file()
    }

    fn free_bytes(&self) -> Option<u64> {
        let room = rustix::fs::statvfs(&self.folder).ok()?;
        Some(room.f_bavail.saturating_mul(room.f_frsize))
    }
}

/// The time of the system's clock, in milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gap;

    #[test]
    fn given_an_end_that_is_not_forced_to_the_disk_a_file_is_begun() {
        let folder = tempfile::tempdir().unwrap();
        let rotation = Rotation { size: 1, age: Duration::from_secs(3_600), keep: 1 << 30 };
        let mut writer = FolderWriter::new(folder.path(), rotation, Header::default());
        let gap = Entry { at_ms: 1, what: What::Gap(Gap { lost: 1, from_ms: 1, to_ms: 1 }) };
        let block = gap.encode().unwrap();
        writer.write(&block).unwrap();
        // It takes each write, and cannot be forced to a disk.
        let device = OpenOptions::new().append(true).open("/dev/null").unwrap();
        writer.current.as_mut().unwrap().file = device;
        assert!(writer.sync().is_err());
        writer.write(&block).unwrap();
        assert!(folder.path().join("replica-1-00000002.bjournal").exists());
    }
}
