//! The versions of a state, numbered anew.

use crate::objects::{Each, Id, Seen};

/// The versions of each object that something in a state remembers, and their new numbers.
#[derive(Default)]
pub(crate) struct Versions {
    /// One bit for each version. A state remembers few, and their numbers are low.
    remembered: Each<u64>,
}

impl Versions {
    /// Something remembers this version.
    pub(crate) fn note(&mut self, id: Id, seen: Seen) {
        assert!(seen.version < 64, "versions are numbered anew before that many writes");
        self.remembered[id.index()] |= 1 << seen.version;
    }

    /// Whether the versions of each object are 1, 2 and so on.
    pub(crate) fn are_canonical(&self) -> bool {
        self.remembered.iter().all(|bits| (bits >> 1).trailing_ones() + 1 == u64::BITS - bits.leading_zeros())
    }

    /// The object with its version's place among the remembered ones, from 1.
    pub(crate) fn renumbered(&self, id: Id, seen: Seen) -> Seen {
        let not_newer = self.remembered[id.index()] & (u64::MAX >> (63 - seen.version));
        Seen { version: not_newer.count_ones() as u16, ..seen }
    }
}
