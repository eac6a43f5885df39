//! Reads one file of either format.
//!
//! Format 1 has magic bytes, then frames of length, chained digest and one record each.

use std::fmt;
use std::io::{self, Read};

use crate::block::{BLOCK_HEAD, BlockDecoder, BlockHead, HEADER_MAX, MAGIC};
use crate::record::RECORD_MAX;
use crate::{ChainDigest, Entry, Header, Record, What};

/// First bytes of a file of format 1.
const MAGIC_1: &[u8; 16] = b"bindery-journal1";
/// Bytes of a frame of format 1 before its record.
const FRAME_HEAD: usize = 4 + ChainDigest::BYTES;

/// Reads the entries of one file, in order.
pub struct Reader<R> {
    source: R,
    format: Format,
    chain: ChainDigest,
    /// Number of the frame or block that was read last.
    number: u64,
    /// Bytes that were read.
    offset: u64,
}

enum Format {
    One,
    Two(Box<Two>),
}

/// The state of a reader of format 2.
struct Two {
    header: Header,
    decoder: BlockDecoder,
    /// The records of the block that was read last.
    plain: Vec<u8>,
    /// How many of its bytes were decoded.
    decoded: usize,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The header of format 2.
    Header,
    /// A record of format 1: its number, from 1.
    Record(u64),
    /// A block of format 2: its number in its file, from 1.
    Block(u64),
}

/// Why a file, or the rest of one, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The source failed.
    #[error("the journal cannot be read")]
    Io(#[from] io::Error),
    /// It has no byte yet.
    #[error("the journal is empty: no decision has been recorded yet")]
    Empty,
    /// It does not begin with the magic bytes of a format.
    #[error("this is not a decision journal of format 1 or 2")]
    NotAJournal,
    /// It ends inside a record or block: its writer is writing it, or was stopped there. What is before is
    /// whole.
    #[error("the journal ends inside {0}; what is before it is whole")]
    Unfinished(Place),
    /// This, or something before it, is not what was written.
    #[error("{0} is not what was written: its digest does not continue the chain")]
    Broken(Place),
    /// Another file begins here: files were joined.
    #[error(
        "another journal begins at byte {offset}, after {after}: split the file there, and read both parts"
    )]
    Joined {
        /// The last record or block before.
        after: Place,
        /// Where the other journal begins in the file.
        offset: u64,
    },
    /// The digest is right, but the content is of another version of Bindery.
    #[error("{place} cannot be decoded by this version: {why}")]
    Undecodable {
        /// Where.
        place: Place,
        /// What the decoder said.
        why: String,
    },
    /// The digest is right, but no version of Bindery has written this.
    #[error("{place} has a record that no version of Bindery writes: {why}")]
    Impossible {
        /// Where.
        place: Place,
        /// Which record, and what is wrong with it.
        why: String,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("the header"),
            Self::Record(number) => write!(f, "record {number}"),
            Self::Block(number) => write!(f, "block {number}"),
        }
    }
}

impl<R: Read> Reader<R> {
    /// Opens a file.
    pub fn open(mut source: R) -> Result<Self, ReadError> {
        let mut magic = [0; MAGIC.len()];
        let read = fill(&mut source, &mut magic)?;
        let (format, chain) = match &magic {
            _ if read == 0 => return Err(ReadError::Empty),
            _ if read < MAGIC.len() && MAGIC.starts_with(&magic[..read]) => {
                return Err(ReadError::Unfinished(Place::Header));
            }
            MAGIC_1 => (Format::One, ChainDigest::default()),
            MAGIC => {
                let (header, chain) = header(&mut source)?;
                let decoder = BlockDecoder::new()?;
                let two = Two { header, decoder, plain: Vec::new(), decoded: 0 };
                (Format::Two(Box::new(two)), chain)
            }
            _ => return Err(ReadError::NotAJournal),
        };
        Ok(Self { source, format, chain, number: 0, offset: MAGIC.len() as u64 })
    }

    /// The digest of the last record or block that was read, and so of all up to it.
    pub fn digest(&self) -> ChainDigest {
        self.chain
    }

    /// What a file of format 2 continues, and its writer.
    pub fn header(&self) -> Option<&Header> {
        match &self.format {
            Format::One => None,
            Format::Two(two) => Some(&two.header),
        }
    }

    fn place(&self) -> Place {
        match self.format {
            Format::One => Place::Record(self.number),
            Format::Two(_) => Place::Block(self.number),
        }
    }

    fn read(&mut self) -> Result<Option<Entry>, ReadError> {
        if matches!(self.format, Format::One) {
            return self.read_frame();
        }
        loop {
            let Format::Two(two) = &mut self.format else { return Ok(None) };
            if two.decoded < two.plain.len() {
                let plain = &two.plain[two.decoded..];
                let decoded = Entry::decode(plain).map(|(entry, rest)| (entry, plain.len() - rest.len()));
                return match decoded {
                    Ok((entry, bytes)) => {
                        two.decoded += bytes;
                        self.checked(entry)
                    }
                    Err(error) => Err(self.undecodable(&error)),
                };
            }
            if !self.read_block(true)? {
                return Ok(None);
            }
        }
    }

    /// Checks the digests of all blocks that are left, without decoding them; returns the digest of the last
    /// whole one. For a writer that continues the file's chain.
    pub(crate) fn scan(mut self) -> (ChainDigest, Option<ReadError>) {
        loop {
            match self.read_block(false) {
                Ok(true) => {}
                Ok(false) => return (self.chain, None),
                Err(error) => return (self.chain, Some(error)),
            }
        }
    }

    /// Reads the head of the next block or frame; `None` at the end. Another journal begins with `magic`.
    fn next_head<const BYTES: usize>(&mut self, magic: &[u8]) -> Result<Option<[u8; BYTES]>, ReadError> {
        let mut head = [0; BYTES];
        let got = fill(&mut self.source, &mut head)?;
        if got == 0 {
            return Ok(None);
        }
        if head.starts_with(magic) {
            return Err(ReadError::Joined { after: self.place(), offset: self.offset });
        }
        self.number += 1;
        if got < head.len() {
            return Err(ReadError::Unfinished(self.place()));
        }
        Ok(Some(head))
    }

    /// Reads the next block; returns whether there is one.
    fn read_block(&mut self, decode: bool) -> Result<bool, ReadError> {
        let Some(head) = self.next_head::<BLOCK_HEAD>(MAGIC)? else { return Ok(false) };
        let place = self.place();
        let head = BlockHead::read(&head).ok_or(ReadError::Broken(place))?;
        let data = self.take(head.data, place)?;
        if !head.continues(&self.chain, &data) {
            return Err(ReadError::Broken(place));
        }
        self.chain = head.digest;
        self.offset += (BLOCK_HEAD + data.len()) as u64;
        if let (true, Format::Two(two)) = (decode, &mut self.format) {
            match two.decoder.plain(head, &data) {
                Ok(plain) => (two.plain, two.decoded) = (plain, 0),
                Err(error) => return Err(self.undecodable(&error)),
            }
        }
        Ok(true)
    }

    fn read_frame(&mut self) -> Result<Option<Entry>, ReadError> {
        let Some(head) = self.next_head::<FRAME_HEAD>(MAGIC_1)? else { return Ok(None) };
        let place = self.place();
        let (length, digest) = head.split_at(4);
        let length = u32::from_le_bytes(length.try_into().expect("four bytes were split off")) as usize;
        if length > RECORD_MAX {
            return Err(ReadError::Broken(place));
        }
        let payload = self.take(length, place)?;
        self.offset += (head.len() + payload.len()) as u64;
        self.chain = self.chain.then(&[&payload]);
        if self.chain.bytes() != digest {
            return Err(ReadError::Broken(place));
        }
        let record = Record::from_format_1(&payload).map_err(|error| self.undecodable(&error))?;
        let seconds = u64::try_from(record.evidence.request.now).unwrap_or_default();
        self.checked(Entry { at_ms: seconds.saturating_mul(1_000), what: What::Decision(Box::new(record)) })
    }

    fn checked(&self, entry: Entry) -> Result<Option<Entry>, ReadError> {
        entry.check().map_err(|why| ReadError::Impossible { place: self.place(), why })?;
        Ok(Some(entry))
    }

    /// Reads as many bytes, without reserving memory for what is not there.
    fn take(&mut self, length: usize, place: Place) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        let got = (&mut self.source).take(length as u64).read_to_end(&mut bytes)?;
        if got < length { Err(ReadError::Unfinished(place)) } else { Ok(bytes) }
    }

    fn undecodable(&self, error: &dyn fmt::Display) -> ReadError {
        ReadError::Undecodable { place: self.place(), why: error.to_string() }
    }
}

/// Yields the entries; nothing after the first error has a meaning, because the chain is broken there.
impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// Reads the header of format 2 after its magic bytes.
fn header(source: &mut impl Read) -> Result<(Header, ChainDigest), ReadError> {
    let unfinished = || ReadError::Unfinished(Place::Header);
    let mut length = [0; 4];
    if fill(source, &mut length)? < length.len() {
        return Err(unfinished());
    }
    let bytes = u32::from_le_bytes(length) as usize;
    if bytes > HEADER_MAX {
        return Err(ReadError::Broken(Place::Header));
    }
    let mut rest = vec![0; bytes + ChainDigest::BYTES];
    if fill(source, &mut rest)? < rest.len() {
        return Err(unfinished());
    }
    let (payload, digest) = rest.split_at(bytes);
    // What is not a header has no digest that could be right either.
    let header: Header = postcard::from_bytes(payload).map_err(|_| ReadError::Broken(Place::Header))?;
    let chain = header.previous.then(&[MAGIC, &length, payload]);
    if chain.bytes() == digest { Ok((header, chain)) } else { Err(ReadError::Broken(Place::Header)) }
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
