//! Conflicts that repeat because the cache does not get a change or a deletion.

use std::collections::HashMap;
use std::time::Duration;

use bindery_core::Version;
use bindery_store::Kind;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The cache is stale if it does not get a change within this time: a watch delivers it within a second or
/// two.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(10);
/// Most objects that are remembered.
const OBJECTS_MAX: usize = 10_000;

/// The versions for which writes were refused because the object has another one (409) or is gone (404), and
/// since when.
///
/// The change or deletion that this tells of comes by the watch. After a restore of etcd that takes back
/// fewer versions than are written until a replica notices, it never comes: the watch goes on from a version
/// that etcd gives out a second time.
#[derive(Default)]
pub(crate) struct Conflicts(Mutex<HashMap<(Kind, String), (Version, Instant)>>);

impl Conflicts {
    /// A write for this version of an object was refused, or a live read found no object. Returns whether the
    /// kind must be listed again, because this has gone on for the same version for [`STALE_AFTER`].
    pub(crate) fn refused(&self, kind: Kind, object: &str, version: &Version) -> bool {
        let mut conflicts = self.0.lock();
        if conflicts.len() >= OBJECTS_MAX {
            conflicts.clear();
        }
        let first = (version.clone(), Instant::now());
        let (known, since) = conflicts.entry((kind, object.to_owned())).or_insert_with(|| first.clone());
        let is_stale = known == version && since.elapsed() >= STALE_AFTER;
        if is_stale || known != version {
            (*known, *since) = first;
        }
        is_stale
    }

    /// A write of an object succeeded.
    pub(crate) fn written(&self, kind: Kind, object: &str) {
        let mut conflicts = self.0.lock();
        if !conflicts.is_empty() {
            conflicts.remove(&(kind, object.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_version_that_conflicts_for_ten_seconds_is_stale() {
        let (conflicts, old, new) = (Conflicts::default(), Version::from("7"), Version::from("8"));
        let refused = |version| conflicts.refused(Kind::Volume, "v1", version);
        assert!(!refused(&old));
        advance(STALE_AFTER / 2).await;
        assert!(!refused(&new), "the cache got the change");
        advance(STALE_AFTER / 2).await;
        assert!(!refused(&new));
        advance(STALE_AFTER / 2).await;
        assert!(refused(&new));
        assert!(!refused(&new), "the list has just been asked for");
        advance(STALE_AFTER).await;
        conflicts.written(Kind::Volume, "v1");
        assert!(!refused(&new), "a write has succeeded since");
    }
}
