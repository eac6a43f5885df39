//! Format 2: a header, then blocks of records, compressed and chained.
//!
//! The compressed bytes of all blocks of a file are one zstd frame, flushed at the end of each block. So an
//! object that was recorded within the last [`WINDOW`] is a reference and not a copy.

use std::io::{self, Write as _};

use zstd::stream::write::{Decoder, Encoder};

use crate::record::RECORD_MAX;
use crate::{ChainDigest, Header};

/// First bytes of a file of format 2.
pub(crate) const MAGIC: &[u8; 16] = b"bindery-journal2";
/// Bytes of a block before its data: lengths of the data and of the records in it, and the digest.
pub(crate) const BLOCK_HEAD: usize = 4 + 4 + ChainDigest::BYTES;
/// A block with more bytes of records than this is written.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;
/// Most bytes of the records of one block: less than a block, one record more, and a gap.
pub(crate) const PLAIN_MAX: usize = BLOCK_BYTES + RECORD_MAX + 64;
/// Most bytes of the data of one block. What cannot be compressed grows by less than a hundredth.
pub(crate) const DATA_MAX: usize = PLAIN_MAX + PLAIN_MAX / 64;
/// Most bytes of a header; its texts are a name and versions.
pub(crate) const HEADER_MAX: usize = 16 << 10;
/// How far back the compressor looks: a power of two of bytes, 8 MiB. It is what a reader and a writer need
/// of memory.
const WINDOW: u32 = 23;
/// The level of compression.
const LEVEL: i32 = 1;

/// Makes the blocks of one file.
pub(crate) struct BlockEncoder {
    encoder: Encoder<'static, Vec<u8>>,
    chain: ChainDigest,
}

/// Reads the blocks of one file.
pub(crate) struct BlockDecoder {
    decoder: Decoder<'static, Bounded>,
}

/// Takes at most as many bytes as it may.
struct Bounded {
    bytes: Vec<u8>,
    max: usize,
}

/// The head of a block.
#[derive(Clone, Copy)]
pub(crate) struct BlockHead {
    /// Bytes of its data.
    pub(crate) data: usize,
    /// Bytes of its records.
    pub(crate) plain: usize,
    /// Its digest.
    pub(crate) digest: ChainDigest,
}

impl BlockEncoder {
    /// Begins a file; returns its first bytes too.
    pub(crate) fn new(header: &Header) -> io::Result<(Self, Vec<u8>)> {
        let payload = postcard::to_stdvec(header).map_err(io::Error::other)?;
        let length = u32::try_from(payload.len()).ok().filter(|length| *length as usize <= HEADER_MAX);
        let length = length.ok_or_else(|| io::Error::other("a header of more than 16 KiB"))?.to_le_bytes();
        let chain = header.previous.then(&[MAGIC, &length, &payload]);
        let first = [&MAGIC[..], &length, &payload, chain.bytes()].concat();
        let mut encoder = Encoder::new(Vec::new(), LEVEL)?;
        encoder.window_log(WINDOW)?;
        Ok((Self { encoder, chain }, first))
    }

    /// The block of these records.
    pub(crate) fn block(&mut self, plain: &[u8]) -> io::Result<Vec<u8>> {
        self.encoder.write_all(plain)?;
        self.encoder.flush()?;
        let data = std::mem::take(self.encoder.get_mut());
        let too_large = || io::Error::other("a block of more than 16 MiB");
        let length = |bytes: usize| u32::try_from(bytes).map_err(|_| too_large());
        let lengths = [length(data.len())?.to_le_bytes(), length(plain.len())?.to_le_bytes()].concat();
        self.chain = self.chain.then(&[&lengths, &data]);
        Ok([&lengths, self.chain.bytes(), &data].concat())
    }

    /// Digest of the last block.
    pub(crate) fn chain(&self) -> ChainDigest {
        self.chain
    }
}

impl BlockHead {
    /// Reads the head of a block; `None` if it has lengths that no block has.
    pub(crate) fn read(bytes: &[u8; BLOCK_HEAD]) -> Option<Self> {
        let length = |at: usize| {
            let bytes = bytes[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes) as usize
        };
        let digest: [u8; ChainDigest::BYTES] = bytes[8..].try_into().expect("the rest is the digest");
        let head = Self { data: length(0), plain: length(4), digest: digest.into() };
        (head.data <= DATA_MAX && head.plain <= PLAIN_MAX).then_some(head)
    }

    /// Whether the block continues the chain with this data.
    pub(crate) fn continues(&self, chain: &ChainDigest, data: &[u8]) -> bool {
        // Lengths that were read fit.
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or_default().to_le_bytes();
        chain.then(&[&length(self.data), &length(self.plain), data]) == self.digest
    }
}

impl BlockDecoder {
    pub(crate) fn new() -> io::Result<Self> {
        let mut decoder = Decoder::new(Bounded { bytes: Vec::new(), max: 0 })?;
        decoder.window_log_max(WINDOW)?;
        Ok(Self { decoder })
    }

    /// The records of the next block; an error if they are not as many bytes as its head says.
    pub(crate) fn plain(&mut self, head: BlockHead, data: &[u8]) -> io::Result<Vec<u8>> {
        self.decoder.get_mut().max = head.plain;
        self.decoder.write_all(data)?;
        self.decoder.flush()?;
        let bytes = std::mem::take(&mut self.decoder.get_mut().bytes);
        if bytes.len() < head.plain {
            return Err(io::Error::other("its data has fewer bytes than its head says"));
        }
        Ok(bytes)
    }
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.max {
            return Err(io::Error::other("its data has more bytes than its head says"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
