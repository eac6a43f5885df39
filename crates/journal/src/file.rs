//! The file format: magic bytes, then frames of length, chained digest and payload.

use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

use crate::Record;

/// First bytes of every journal; the number is that of the format.
const MAGIC: &[u8; 16] = b"bindery-journal1";
/// Most bytes of one record; the limits of a decision keep its evidence far below.
const RECORD_MAX: u32 = 16 << 20;
/// Bytes of a digest.
const DIGEST: usize = 32;

/// Appends records to a journal.
pub struct Writer<W> {
    sink: W,
    chain: [u8; DIGEST],
}

/// Reads the records of a journal, in order.
pub struct Reader<R> {
    source: R,
    chain: [u8; DIGEST],
    number: u64,
    /// Bytes that were read.
    offset: u64,
}

/// Why a journal, or the rest of one, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The source failed.
    #[error("the journal cannot be read")]
    Io(#[from] io::Error),
    /// It has no byte yet.
    #[error("the journal is empty: no decision has been recorded yet")]
    Empty,
    /// It does not begin with the magic bytes.
    #[error("this is not a decision journal of format 1")]
    NotAJournal,
    /// It ends inside a record, where the writer was stopped. The records before are whole.
    #[error("the journal ends inside record {number}; the records before it are whole")]
    Unfinished {
        /// Number of the record, from 1.
        number: u64,
    },
    /// A record, or one before it, is not what was written.
    #[error("record {number} is not what was written: its digest does not continue the chain")]
    Broken {
        /// Number of the record, from 1.
        number: u64,
    },
    /// Another journal begins here: files were joined.
    #[error(
        "another journal begins at byte {offset}, after record {after}: split the file there, and replay \
         both parts"
    )]
    Joined {
        /// Number of the last record before.
        after: u64,
        /// Where the other journal begins in the file.
        offset: u64,
    },
    /// The digest is right, but the record is of another version of Bindery.
    #[error("record {number} cannot be decoded by this version")]
    Undecodable {
        /// Number of the record, from 1.
        number: u64,
        /// What the decoder said.
        source: postcard::Error,
    },
}

impl<W: Write> Writer<W> {
    /// Starts a new journal.
    ///
    /// # Errors
    ///
    /// The sink failed.
    pub fn create(mut sink: W) -> io::Result<Self> {
        sink.write_all(MAGIC)?;
        Ok(Self { sink, chain: [0; DIGEST] })
    }

    /// Appends a record and flushes it to the sink.
    ///
    /// # Errors
    ///
    /// The record is too large, or the sink failed.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let payload = record.to_bytes().map_err(io::Error::other)?;
        let length = u32::try_from(payload.len()).ok().filter(|length| *length <= RECORD_MAX);
        let length = length.ok_or_else(|| io::Error::other("a record of more than 16 MiB"))?;
        self.chain = next(&self.chain, &payload);
        self.sink.write_all(&length.to_le_bytes())?;
        self.sink.write_all(&self.chain)?;
        self.sink.write_all(&payload)?;
        self.sink.flush()
    }
}

impl<R: Read> Reader<R> {
    /// Opens a journal.
    ///
    /// # Errors
    ///
    /// The source failed or holds no journal.
    pub fn open(mut source: R) -> Result<Self, ReadError> {
        let mut magic = [0; MAGIC.len()];
        match fill(&mut source, &mut magic)? {
            0 => return Err(ReadError::Empty),
            read if read < MAGIC.len() || magic != *MAGIC => return Err(ReadError::NotAJournal),
            _ => {}
        }
        Ok(Self { source, chain: [0; DIGEST], number: 0, offset: MAGIC.len() as u64 })
    }

    /// The digest of the last record that was read, and so of all records up to it; 64 hexadecimal digits.
    /// Kept elsewhere at the end of a journal, it shows later whether records were cut off or added.
    pub fn digest(&self) -> String {
        use std::fmt::Write as _;
        self.chain.iter().fold(String::with_capacity(2 * DIGEST), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    fn read(&mut self) -> Result<Option<Record>, ReadError> {
        let mut head = [0; 4 + DIGEST];
        let got = fill(&mut self.source, &mut head)?;
        if got == 0 {
            return Ok(None);
        }
        if head.starts_with(MAGIC) {
            return Err(ReadError::Joined { after: self.number, offset: self.offset });
        }
        self.number += 1;
        let number = self.number;
        if got < head.len() {
            return Err(ReadError::Unfinished { number });
        }
        let (length, digest) = head.split_at(4);
        let length = u32::from_le_bytes(length.try_into().expect("four bytes were split off"));
        if length > RECORD_MAX {
            return Err(ReadError::Broken { number });
        }
        let mut payload = Vec::new();
        let got = (&mut self.source).take(u64::from(length)).read_to_end(&mut payload)?;
        if got < length as usize {
            return Err(ReadError::Unfinished { number });
        }
        self.offset += (head.len() + payload.len()) as u64;
        self.chain = next(&self.chain, &payload);
        if self.chain != *digest {
            return Err(ReadError::Broken { number });
        }
        Record::from_bytes(&payload).map(Some).map_err(|source| ReadError::Undecodable { number, source })
    }
}

/// Yields the records; ends after the first error, because the chain is broken there.
impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

fn next(chain: &[u8; DIGEST], payload: &[u8]) -> [u8; DIGEST] {
    Sha256::new().chain_update(chain).chain_update(payload).finalize().into()
}

/// Reads until the buffer is full or the source ends; returns how much was read.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
