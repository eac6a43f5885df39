//! Names, UIDs and versions: how an object is addressed.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Shared, immutable text. Decisions repeat the names of their questions, so clones must be cheap.
pub type Text = Arc<str>;

/// Seconds since the Unix epoch, as `metadata.creationTimestamp` gives them.
pub type Timestamp = i64;

/// Number of a volume within one decision, in the order of first mention, and so equal on every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Handle(pub u32);

/// `metadata.uid`: the identity of an object. A name can be used again, a UID cannot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Uid(pub Text);

/// `metadata.resourceVersion`: opaque, compared for equality only (the store alone orders versions).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Version(pub Text);

/// Namespace and name of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimKey {
    /// `metadata.namespace`.
    pub namespace: Text,
    /// `metadata.name`.
    pub name: Text,
}

/// Names a claim or a volume: the unit of deciding.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Key {
    /// A claim.
    Claim(ClaimKey),
    /// A volume, by name.
    Volume(Text),
}

/// The claim that an action writes: the object, its UID and the version that was read.
///
/// The engine always names the version that it read. Where an earlier action of the same decision wrote the
/// object, the host sends the version that this write returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimTarget {
    /// Namespace and name.
    pub key: ClaimKey,
    /// UID of the object that was read.
    pub uid: Uid,
    /// Version of the object that was read.
    pub version: Version,
}

/// The volume that an action writes; see [`ClaimTarget`] for the meaning of the version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeTarget {
    /// `metadata.name`.
    pub name: Text,
    /// UID of the object that was read.
    pub uid: Uid,
    /// Version of the object that was read.
    pub version: Version,
}

impl ClaimKey {
    /// Key of the claim `name` in `namespace`.
    pub fn new(namespace: impl Into<Text>, name: impl Into<Text>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl From<&str> for Uid {
    fn from(uid: &str) -> Self {
        Self(uid.into())
    }
}

impl From<&str> for Version {
    fn from(version: &str) -> Self {
        Self(version.into())
    }
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
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

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
