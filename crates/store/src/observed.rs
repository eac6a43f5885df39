//! What the watches deliver.

use std::fmt;
use std::sync::Arc;

use bindery_core::{Claim, Text, Uid, Version, Volume};

/// An object as a watch delivered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed<T> {
    /// It was understood.
    Readable(Arc<T>),
    /// It exists and cannot be parsed (G7 of the design: never absent).
    Unreadable(Unreadable),
}

/// What is known of an object that cannot be parsed; its name or key is given beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub version: Version,
    /// What is wrong: the field, its value and the remedy.
    pub why: Text,
}

/// A pod, as a watch delivered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRecord {
    /// `metadata.namespace`.
    pub namespace: Text,
    /// `metadata.name`.
    pub name: Text,
    /// The rest of it; what is wrong where it cannot be parsed (G7 of the design). Then it may use every
    /// claim of its namespace, for all that is known.
    pub content: Result<PodContent, Text>,
}

/// A pod, reduced to what decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodContent {
    /// Names of the claims that it references, directly or through generic ephemeral volumes
    /// (`<pod>-<volume>`), as upstream's `pod-pvc-index` has them (reference section 2.1).
    pub claims: Vec<Text>,
    /// Whether `spec.nodeName` is set.
    pub scheduled: bool,
    /// Whether it runs no more (upstream's `IsPodTerminated`, reference section 1.5).
    pub terminated: bool,
}

/// The kinds of objects that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// PersistentVolume.
    Volume,
    /// PersistentVolumeClaim.
    Claim,
    /// StorageClass.
    Class,
    /// Pod.
    Pod,
    /// Node.
    Node,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Volume, Self::Claim, Self::Class, Self::Pod, Self::Node];

    /// The API's name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Volume => "PersistentVolume",
            Self::Claim => "PersistentVolumeClaim",
            Self::Class => "StorageClass",
            Self::Pod => "Pod",
            Self::Node => "Node",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An object with an identity and a version.
pub(crate) trait Object {
    /// `metadata.uid`.
    fn uid(&self) -> &Uid;
    /// `metadata.resourceVersion`.
    fn version(&self) -> &Version;
}

impl Object for Volume {
    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn version(&self) -> &Version {
        &self.version
    }
}

impl Object for Claim {
    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn version(&self) -> &Version {
        &self.version
    }
}

impl<T: Object> Object for Observed<T> {
    fn uid(&self) -> &Uid {
        match self {
            Self::Readable(object) => object.uid(),
            Self::Unreadable(object) => &object.uid,
        }
    }

    fn version(&self) -> &Version {
        match self {
            Self::Readable(object) => object.version(),
            Self::Unreadable(object) => &object.version,
        }
    }
}
