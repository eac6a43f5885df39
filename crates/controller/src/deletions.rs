//! Volumes that the API server has agreed to delete, until the watch tells that they are gone.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bindery_core::{Text, Uid, Volume, VolumeTarget};
use bindery_store::Observed;

/// Deletions that were accepted. Nothing is left to do for such a volume: its deletion is the last step of
/// reclaiming it, and cannot be taken back. But until the watch has told of it the store has the volume as it
/// was before, and while somebody's finalizer holds it a sync would begin to reclaim it once more.
///
/// Only a restore of etcd undoes a deletion. A list shows that: it was requested after the deletion was
/// accepted, and has the volume without a deletionTimestamp.
///
/// At most one entry for a name, and none for a volume that has gone.
#[derive(Default)]
pub(crate) struct Deletions(Mutex<HashMap<Text, Accepted>>);

struct Accepted {
    uid: Uid,
    /// How many lists of volumes had begun before.
    lists_begun: u64,
}

impl Deletions {
    /// The API server has accepted to delete that volume, when so many lists of volumes had begun.
    pub(crate) fn accept(&self, target: &VolumeTarget, lists_begun: u64) {
        let accepted = Accepted { uid: target.uid.clone(), lists_begun };
        self.inner().insert(target.name.clone(), accepted);
    }

    /// Whether it has accepted to delete this volume. Another one of its name is a new one.
    pub(crate) fn is_accepted(&self, volume: &Volume) -> bool {
        let mut inner = self.inner();
        let is_accepted = inner.get(&volume.name).is_some_and(|accepted| accepted.uid == volume.uid);
        if !is_accepted {
            inner.remove(&volume.name);
        }
        is_accepted
    }

    /// The volume is gone.
    pub(crate) fn forget(&self, name: &str) {
        self.inner().remove(name);
    }

    /// Forgets the deletions that a list shows to be undone, and answers the names of their volumes. So many
    /// lists of volumes had begun with this one.
    pub(crate) fn take_undone(&self, list: &[(Text, Observed<Volume>)], lists_begun: u64) -> Vec<Text> {
        let mut inner = self.inner();
        if inner.is_empty() {
            return Vec::new();
        }
        let is_undone = |volume: &Volume| {
            let accepted = inner.get(&volume.name).filter(|accepted| accepted.uid == volume.uid);
            !volume.deleting && accepted.is_some_and(|accepted| accepted.lists_begun < lists_begun)
        };
        let undone = list.iter().filter_map(|(name, observed)| match observed {
            Observed::Readable(volume) if is_undone(volume) => Some(name.clone()),
            _ => None,
        });
        let undone: Vec<Text> = undone.collect();
        inner.retain(|name, _| !undone.contains(name));
        undone
    }

    fn inner(&self) -> MutexGuard<'_, HashMap<Text, Accepted>> {
        // Every change is one call, so a panic elsewhere leaves the map sound.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
