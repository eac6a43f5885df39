//! What a repository of a registry and a layout on disk have in common.

use std::fmt;

use async_trait::async_trait;

use crate::digest::Digest;
use crate::error::Result;
use crate::manifest::{Descriptor, Manifest};

/// What names a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// Its digest.
    Digest(Digest),
    /// A tag, which its owner may move to another manifest.
    Tag(String),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digest(digest) => digest.fmt(f),
            Self::Tag(tag) => tag.fmt(f),
        }
    }
}

/// Manifests and blobs: a repository of a registry, or a layout on disk. What is read by digest has it.
#[async_trait]
pub trait Repository: Send + Sync {
    /// The bytes of a manifest.
    ///
    /// # Errors
    ///
    /// It is not there, is larger than [`limits::MANIFEST_MAX`](crate::limits::MANIFEST_MAX), or has another
    /// digest.
    async fn manifest(&self, name: &Name) -> Result<Vec<u8>>;

    /// The bytes of a blob.
    ///
    /// # Errors
    ///
    /// It is not there, is larger than `max`, or has another size or digest.
    async fn blob(&self, blob: &Descriptor, max: usize) -> Result<Vec<u8>>;

    /// The manifests whose subject is this one, at most
    /// [`limits::REFERRERS_MAX`](crate::limits::REFERRERS_MAX). This is a hint: each must be read, and its
    /// subject checked.
    async fn referrers(&self, subject: &Digest) -> Result<Vec<Descriptor>>;

    /// Writes a blob, unless it is there.
    async fn put_blob(&self, bytes: &[u8]) -> Result<()>;

    /// Writes a manifest whose blobs are there, and makes it a referrer of its subject.
    async fn put_manifest(&self, name: &Name, manifest: &Manifest, bytes: &[u8]) -> Result<()>;
}
