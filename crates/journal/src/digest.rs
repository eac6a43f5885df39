//! The chain of digests.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The digest of a block and of all before it, across files; all zeros before the first. Displayed as 64
/// hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainDigest([u8; Self::BYTES]);

impl ChainDigest {
    /// Number of its bytes.
    pub(crate) const BYTES: usize = 32;

    /// The digest of what follows, in pieces.
    pub(crate) fn then(&self, pieces: &[&[u8]]) -> Self {
        let first = Sha256::new().chain_update(self.0);
        Self(pieces.iter().fold(first, |digest, piece| digest.chain_update(piece)).finalize().into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<[u8; ChainDigest::BYTES]> for ChainDigest {
    fn from(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for ChainDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
