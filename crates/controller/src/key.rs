//! The unit of deciding: one claim or one volume.

use std::fmt;

use bindery_core::{ClaimKey, Text};

/// Names an object that the binder decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A claim.
    Claim(ClaimKey),
    /// A volume, by name.
    Volume(Text),
}

impl From<ClaimKey> for Key {
    fn from(key: ClaimKey) -> Self {
        Self::Claim(key)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(key) => write!(f, "persistentvolumeclaim {key}"),
            Self::Volume(name) => write!(f, "persistentvolume {name}"),
        }
    }
}
