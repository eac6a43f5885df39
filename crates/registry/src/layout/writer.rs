//! Writes to a layout while others remove from it.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use parking_lot::Mutex;

use super::Layout;
use crate::digest::Digest;
use crate::error::Result;
use crate::manifest::{Descriptor, Manifest};
use crate::repository::{Name, Repository};

/// What a writer has written, or found there.
type Written = Mutex<BTreeSet<Digest>>;

/// The writers of a layout.
#[derive(Default)]
pub(super) struct Writers(Vec<Weak<Written>>);

impl Writers {
    /// What all of them have written.
    pub(super) fn written(&self) -> BTreeSet<Digest> {
        self.0.iter().filter_map(Weak::upgrade).flat_map(|written| written.lock().clone()).collect()
    }
}

/// Writes to a layout. [`Layout::retain`] does not remove what it has written, or has found there instead of
/// writing it, until it is dropped.
pub struct Writer<'a> {
    layout: &'a Layout,
    written: Arc<Written>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(layout: &'a Layout) -> Self {
        let written = Arc::default();
        let mut writers = layout.writing.lock();
        writers.0.retain(|writer| writer.strong_count() > 0);
        writers.0.push(Arc::downgrade(&written));
        Self { layout, written }
    }

    /// Holds bytes, before they are looked for, so that they are not removed in between.
    fn hold(&self, bytes: &[u8]) {
        let digest = Digest::of(bytes);
        let _writing = self.layout.writing.lock();
        self.written.lock().insert(digest);
    }
}

#[async_trait]
impl Repository for Writer<'_> {
    async fn manifest(&self, name: &Name) -> Result<Vec<u8>> {
        self.layout.manifest(name).await
    }

    async fn blob(&self, blob: &Descriptor, max: usize) -> Result<Vec<u8>> {
        self.layout.blob(blob, max).await
    }

    async fn referrers(&self, subject: &Digest) -> Result<Vec<Descriptor>> {
        self.layout.referrers(subject).await
    }

    async fn put_blob(&self, bytes: &[u8]) -> Result<()> {
        self.hold(bytes);
        self.layout.put_blob(bytes).await
    }

    async fn put_manifest(&self, name: &Name, manifest: &Manifest, bytes: &[u8]) -> Result<()> {
        self.hold(bytes);
        self.layout.put_manifest(name, manifest, bytes).await
    }
}
