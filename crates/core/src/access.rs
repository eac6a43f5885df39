//! Access modes, and sets of them.

use serde::{Deserialize, Serialize};

use crate::named::named_cases;

named_cases! {
    /// How a volume may be mounted (`PersistentVolumeAccessMode` in core/v1).
    #[derive(Serialize, Deserialize)]
    AccessMode {
        /// `ReadWriteOnce`: read and written by one node.
        ReadWriteOnce = "ReadWriteOnce";
        /// `ReadOnlyMany`: read by many nodes.
        ReadOnlyMany = "ReadOnlyMany";
        /// `ReadWriteMany`: read and written by many nodes.
        ReadWriteMany = "ReadWriteMany";
        /// `ReadWriteOncePod`: read and written by one pod (KEP-2485).
        ReadWriteOncePod = "ReadWriteOncePod";
    }
}

/// A set of access modes, as a bit mask in upstream's canonical order (RWO 1, ROX 2, RWX 4, RWOP 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AccessModes(u32);

impl AccessMode {
    /// kubectl's abbreviation of the mode.
    pub fn short(self) -> &'static str {
        match self {
            Self::ReadWriteOnce => "RWO",
            Self::ReadOnlyMany => "ROX",
            Self::ReadWriteMany => "RWX",
            Self::ReadWriteOncePod => "RWOP",
        }
    }

    fn bit(self) -> u32 {
        match self {
            Self::ReadWriteOnce => 1,
            Self::ReadOnlyMany => 2,
            Self::ReadWriteMany => 4,
            Self::ReadWriteOncePod => 8,
        }
    }
}

impl AccessModes {
    /// Bits of the modes that exist.
    const KNOWN: u32 = 15;

    /// The set with these bits; `None` where a bit stands for no mode.
    pub fn from_bits(bits: u32) -> Option<Self> {
        (bits & !Self::KNOWN == 0).then_some(Self(bits))
    }

    /// The set as bits.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether every mode of `other` is in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// How many modes the set has.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the set has no mode.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The modes of the set, in canonical order.
    pub fn iter(self) -> impl Iterator<Item = AccessMode> {
        AccessMode::ALL.into_iter().filter(move |mode| self.0 & mode.bit() != 0)
    }
}

impl<'a> FromIterator<&'a AccessMode> for AccessModes {
    fn from_iter<I: IntoIterator<Item = &'a AccessMode>>(modes: I) -> Self {
        Self(modes.into_iter().fold(0, |bits, mode| bits | mode.bit()))
    }
}
