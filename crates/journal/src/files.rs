//! Reads a journal: a folder of files, or one file.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use crate::folder::Series;
use crate::{ChainDigest, Entry, Header, Place, ReadError, Reader, What};

/// Reads the entries of a journal, file after file. A folder may have journals of several replicas; then
/// those of one come after those of another.
///
/// Yields an error for each file that cannot be read to its end, or that does not continue the file before,
/// and goes on with the next file.
pub struct Files {
    waiting: VecDeque<PathBuf>,
    current: Option<Current>,
    /// Why the first file cannot be read, until it is yielded.
    failed: Option<FileError>,
    /// The end of the file before, of the same replica.
    before: Option<End>,
    ending: Ending,
    digest: ChainDigest,
    /// The last digest of each journal, by its name.
    digests: BTreeMap<String, ChainDigest>,
    files_read: usize,
}

struct Current {
    path: PathBuf,
    reader: Reader<BufReader<File>>,
    has_ended: bool,
}

/// Where a file ended.
struct End {
    /// The series of the file.
    name: String,
    /// The last digest; `None` after an error that makes it unknown.
    digest: Option<ChainDigest>,
}

/// How the last file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its writer has ended it.
    Ended,
    /// After a whole block: its writer writes it still, or was killed.
    Open,
    /// Inside a block: its writer writes it still, or was killed.
    Torn,
}

/// Why a file of a journal cannot be read to its end.
#[derive(Debug, thiserror::Error)]
#[error("{}", path.display())]
pub struct FileError {
    /// The file, or the folder.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub source: FilesError,
}

/// What is wrong with a file of a journal.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The file itself.
    #[error(transparent)]
    File(#[from] ReadError),
    /// It does not continue the file before it.
    #[error("it does not continue the file before it: files are missing, or were changed or moved")]
    Discontinued,
    /// There is no file.
    #[error("the folder has no journal: no file is named NAME-00000001.bjournal, with any number")]
    NoFile,
}

impl Files {
    /// Opens a folder or a file.
    ///
    /// # Errors
    ///
    /// The path cannot be read, or is a folder without a journal.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        list(path).map(Self::begin)
    }

    fn begin(waiting: VecDeque<PathBuf>) -> Self {
        let (current, failed, before) = (None, None, None);
        let (ending, digest, digests) = (Ending::Open, ChainDigest::default(), BTreeMap::new());
        let mut files = Self { waiting, current, failed, before, ending, digest, digests, files_read: 0 };
        files.failed = files.advance();
        files
    }

    /// Opens the journals of a folder, or the one of a file, each with its name.
    pub fn open_each(path: &Path) -> Result<Vec<(String, Self)>, FileError> {
        let mut by_name: BTreeMap<String, VecDeque<PathBuf>> = BTreeMap::new();
        for file in list(path)? {
            by_name.entry(name_of(&file)).or_default().push_back(file);
        }
        Ok(by_name.into_iter().map(|(name, waiting)| (name, Self::begin(waiting))).collect())
    }

    /// The header of the file that is read; `None` in format 1, and at the end.
    pub fn header(&self) -> Option<&Header> {
        self.current.as_ref()?.reader.header()
    }

    /// The file that is read; `None` at the end.
    pub fn path(&self) -> Option<&Path> {
        self.current.as_ref().map(|current| &*current.path)
    }

    /// The digest of the last record or block that was read, and so of all up to it.
    pub fn digest(&self) -> ChainDigest {
        self.current.as_ref().map_or(self.digest, |current| current.reader.digest())
    }

    /// [`Files::digest`] of each journal, by its name, once everything was read.
    pub fn digests(&self) -> &BTreeMap<String, ChainDigest> {
        &self.digests
    }

    /// Number of files that were opened so far.
    pub fn files_read(&self) -> usize {
        self.files_read
    }

    /// How the last file ends, once everything was read.
    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// Opens the next file that has something to read; an error if one before it has not.
    fn advance(&mut self) -> Option<FileError> {
        while let Some(path) = self.waiting.pop_front() {
            let opened = File::open(&path).map_err(ReadError::Io);
            match opened.and_then(|file| Reader::open(BufReader::new(file))) {
                Ok(reader) => {
                    let name = name_of(&path);
                    let before = self.before.take().filter(|before| before.name == name);
                    let expected = before.and_then(|before| before.digest);
                    let found = reader.header().map(|header| header.previous);
                    self.files_read += 1;
                    self.current = Some(Current { path: path.clone(), reader, has_ended: false });
                    if expected.is_some() && expected != found {
                        return Some(FileError { path, source: FilesError::Discontinued });
                    }
                    return None;
                }
                // Its writer was killed as it began the file, so the next one continues the one before it.
                Err(ReadError::Empty | ReadError::Unfinished(Place::Header))
                    if self.before.is_some() || !self.waiting.is_empty() =>
                {
                    self.ending = Ending::Torn;
                    let name = name_of(&path);
                    if self.before.as_ref().is_none_or(|before| before.name != name) {
                        // After the first file, the next one has to begin the chain. Where a file before was
                        // removed or is damaged, its end is unknown.
                        let is_first = Series::of(&path).is_some_and(|(_, number)| number == 1);
                        self.before = Some(End { name, digest: is_first.then(ChainDigest::default) });
                    }
                }
                Err(error) => {
                    self.before = None;
                    return Some(FileError { path, source: error.into() });
                }
            }
        }
        None
    }

    /// Leaves the file that was read to its end, or to an error.
    fn leave(&mut self, error: Option<ReadError>) -> Option<FileError> {
        let Current { path, reader, has_ended } = self.current.take()?;
        self.digest = reader.digest();
        let is_torn = matches!(error, Some(ReadError::Unfinished(Place::Block(_))));
        let name = name_of(&path);
        self.digests.insert(name.clone(), self.digest);
        let is_whole = error.is_none() || is_torn;
        self.before = Some(End { name, digest: is_whole.then_some(self.digest) });
        self.ending = if has_ended {
            Ending::Ended
        } else if is_torn {
            Ending::Torn
        } else {
            Ending::Open
        };
        error.filter(|_| !is_torn).map(|source| FileError { path, source: source.into() })
    }
}

impl Iterator for Files {
    type Item = Result<Entry, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        loop {
            let Some(current) = &mut self.current else {
                if let Some(error) = self.advance() {
                    return Some(Err(error));
                }
                self.current.as_ref()?;
                continue;
            };
            let error = match current.reader.next() {
                Some(Ok(Entry { what: What::End, .. })) => {
                    current.has_ended = true;
                    continue;
                }
                Some(Ok(entry)) => return Some(Ok(entry)),
                Some(Err(error)) => Some(error),
                None => None,
            };
            if let Some(error) = self.leave(error) {
                return Some(Err(error));
            }
        }
    }
}

/// The files of a folder, by replica and number; or the one file.
fn list(path: &Path) -> Result<VecDeque<PathBuf>, FileError> {
    let error = |source: FilesError| FileError { path: path.to_owned(), source };
    let unreadable = |source| error(ReadError::Io(source).into());
    if !path.metadata().map_err(unreadable)?.is_dir() {
        return Ok(VecDeque::from([path.to_owned()]));
    }
    let files = files_of(path).map_err(unreadable)?;
    if files.is_empty() { Err(error(FilesError::NoFile)) } else { Ok(files) }
}

/// The name of the journal that a file belongs to: that of the file, if it has no number.
fn name_of(path: &Path) -> String {
    match Series::of(path) {
        Some((series, _)) => series.name,
        None => path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
    }
}

/// The files of the journals of a folder, by replica and number.
pub(crate) fn files_of(folder: &Path) -> io::Result<VecDeque<PathBuf>> {
    let mut found = Vec::new();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if let Some((series, number)) = Series::of(&path) {
            found.push((series.name, number, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, _, path)| path).collect())
}
