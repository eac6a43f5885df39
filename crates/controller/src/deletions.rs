//! Volumes whose deletion the API server has accepted, until the watch reports that they are gone.

use std::collections::HashMap;

use bindery_core::{FINALIZER_IN_TREE, Lookup, Source, Text, Uid, Volume, VolumeTarget};
use bindery_store::{Kind, Store};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::executor::STALE_AFTER;

/// Accepted deletions. Nothing is left to do for these volumes: the deletion is the last step of reclaiming a
/// volume and cannot be undone. But until the watch reports it, the store has the volume as before, and while
/// another controller's finalizer holds the volume, a sync would begin to reclaim it again.
///
/// Only a restore of etcd undoes a deletion. A list shows that: it was requested after the deletion was
/// accepted, and has the volume as before. If the watch does not report the deletion, the volumes are listed.
///
/// At most one entry for a name, and none for a volume that is gone.
#[derive(Default)]
pub(crate) struct Deletions(Mutex<HashMap<Text, Accepted>>);

struct Accepted {
    uid: Uid,
    at: Instant,
    /// How many lists of volumes had begun before.
    lists_begun: u64,
}

impl Deletions {
    /// Records that the API server has accepted the deletion of that volume.
    pub(crate) fn accept(&self, target: &VolumeTarget, store: &Store) {
        let (uid, at, lists_begun) = (target.uid.clone(), Instant::now(), store.lists_begun(Kind::Volume));
        self.0.lock().insert(target.name.clone(), Accepted { uid, at, lists_begun });
    }

    /// Whether it has accepted the deletion of this volume. A volume of the same name with another UID is a
    /// new one.
    pub(crate) fn is_accepted(&self, volume: &Volume) -> bool {
        let mut inner = self.0.lock();
        let is_accepted = inner.get(&volume.name).is_some_and(|accepted| accepted.uid == volume.uid);
        if !is_accepted {
            inner.remove(&volume.name);
        }
        is_accepted
    }

    /// Whether the deletion of this volume was accepted [`STALE_AFTER`] ago, and the watch has shown nothing
    /// of it.
    pub(crate) fn is_overdue(&self, volume: &Volume, store: &Store) -> bool {
        let inner = self.0.lock();
        let accepted = inner.get(&volume.name).filter(|accepted| accepted.uid == volume.uid);
        accepted.is_some_and(|accepted| {
            accepted.at.elapsed() >= STALE_AFTER && is_undone(&volume.name, accepted, store)
        })
    }

    /// The volume is gone.
    pub(crate) fn forget(&self, name: &str) {
        self.0.lock().remove(name);
    }

    /// Forgets the deletions that a list shows to be undone, after the store took the list, and returns the
    /// names of their volumes.
    pub(crate) fn take_undone(&self, store: &Store) -> Vec<Text> {
        let mut inner = self.0.lock();
        let lists_begun = store.lists_begun(Kind::Volume);
        let undone = inner.iter().filter(|(name, accepted)| {
            accepted.lists_begun < lists_begun && is_undone(name, accepted, store)
        });
        let undone: Vec<Text> = undone.map(|(name, _)| name.clone()).collect();
        inner.retain(|name, _| !undone.contains(name));
        undone
    }
}

/// Whether the watch cache has a volume as before its accepted deletion: without a deletionTimestamp, or with
/// the finalizer that Bindery removes before it.
fn is_undone(name: &Text, accepted: &Accepted, store: &Store) -> bool {
    let Lookup::Found(volume) = store.volume(Source::Cache, name) else { return false };
    volume.uid == accepted.uid && (!volume.deleting || volume.has_finalizer(FINALIZER_IN_TREE))
}
