//! Volumes that the API server has agreed to delete, until the watch tells that they are gone.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bindery_core::{Text, Uid, Volume, VolumeTarget};

/// Deletions that were accepted. Nothing is left to do for such a volume: its deletion is the last step of reclaiming
/// it, and cannot be taken back. But until the watch has told of it the store has the volume as it was before, and
/// while somebody's finalizer holds it a sync would begin to reclaim it once more.
///
/// At most one entry for a name, and none for a volume that has gone.
#[derive(Default)]
pub(super) struct Deletions(Mutex<HashMap<Text, Uid>>);

impl Deletions {
    /// The API server has accepted to delete that volume.
    pub(super) fn accept(&self, target: &VolumeTarget) {
        self.inner().insert(target.name.clone(), target.uid.clone());
    }

    /// Whether it has accepted to delete this volume. Another one of its name is a new one.
    pub(super) fn is_accepted(&self, volume: &Volume) -> bool {
        let mut inner = self.inner();
        let is_accepted = inner.get(&volume.name) == Some(&volume.uid);
        if !is_accepted {
            inner.remove(&volume.name);
        }
        is_accepted
    }

    /// The volume is gone.
    pub(super) fn forget(&self, name: &str) {
        self.inner().remove(name);
    }

    fn inner(&self) -> MutexGuard<'_, HashMap<Text, Uid>> {
        // Every change is one call, so a panic elsewhere leaves the map sound.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
