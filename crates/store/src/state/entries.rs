//! The volumes by number: rows of the index and handles of sessions are integers.

use std::collections::HashMap;
use std::sync::Arc;

use bindery_core::{Text, Volume};

use crate::cached::Cached;
use crate::delivery::Unreadable;

/// Number of a volume while the watch knows it; used again afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct VolumeId(pub(crate) u32);

/// A volume of the cache, with its name.
#[derive(Debug)]
pub(crate) struct VolumeEntry {
    pub(crate) name: Text,
    pub(crate) cached: Cached<Volume>,
}

/// Every volume that the watch knows.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    ids: HashMap<Text, VolumeId>,
    entries: Vec<Option<VolumeEntry>>,
    vacant: Vec<VolumeId>,
}

impl Volumes {
    pub(crate) fn id(&self, name: &str) -> Option<VolumeId> {
        self.ids.get(name).copied()
    }

    pub(crate) fn get(&self, id: VolumeId) -> &VolumeEntry {
        self.entries[id.0 as usize].as_ref().expect("ids are dropped with their volumes")
    }

    pub(crate) fn get_mut(&mut self, id: VolumeId) -> &mut VolumeEntry {
        self.entries[id.0 as usize].as_mut().expect("ids are dropped with their volumes")
    }

    pub(crate) fn find(&self, name: &str) -> Option<&VolumeEntry> {
        self.id(name).map(|id| self.get(id))
    }

    /// The volume as the overlay has it.
    pub(crate) fn overlay(&self, id: VolumeId) -> Result<&Arc<Volume>, &Unreadable> {
        self.get(id).cached.overlay()
    }

    /// A volume that the index has rows of, and that is therefore readable.
    pub(crate) fn indexed(&self, id: VolumeId) -> &Arc<Volume> {
        self.overlay(id).expect("the index has rows of readable volumes only")
    }

    pub(crate) fn insert(&mut self, name: Text, cached: Cached<Volume>) -> VolumeId {
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(None);
            VolumeId(u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 volumes fit into memory"))
        });
        self.ids.insert(name.clone(), id);
        self.entries[id.0 as usize] = Some(VolumeEntry { name, cached });
        id
    }

    pub(crate) fn remove(&mut self, id: VolumeId) -> VolumeEntry {
        let entry = self.entries[id.0 as usize].take().expect("ids are dropped with their volumes");
        self.ids.remove(&entry.name);
        self.vacant.push(id);
        entry
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &VolumeEntry> {
        self.entries.iter().flatten()
    }
}
