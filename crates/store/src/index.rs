//! The volume index.

use std::collections::BTreeSet;
use std::sync::Arc;

use bindery_core::{AccessModes, ClaimKey, Quantity, Query, Tally, Text, Uid, Volume, VolumePhase};

use crate::state::{VolumeId, Volumes};

#[derive(Debug, Default)]
pub(crate) struct Index {
    held: BTreeSet<VolumeId>,
    ids: BTreeSet<VolumeId>,
}

/// A volume as the overlay has it.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    Absent,
    Unreadable,
    Readable(Arc<Volume>),
}

impl Seen {
    pub(crate) fn volume(&self) -> Option<&Arc<Volume>> {
        match self {
            Self::Readable(v) => Some(v),
            _ => None,
        }
    }
    pub(crate) fn indexed_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Absent, Self::Absent) | (Self::Unreadable, Self::Unreadable) => true,
            (Self::Readable(a), Self::Readable(b)) => a == b,
            _ => false,
        }
    }
}

pub(crate) struct Row {
    pub(crate) id: VolumeId,
    pub(crate) whole: u64,
    pub(crate) nanos: u32,
    pub(crate) held: bool,
}

pub(crate) fn claim_of(volume: &Volume) -> Option<ClaimKey> {
    volume.claim_ref.as_ref().map(|r| ClaimKey { namespace: r.namespace.clone(), name: r.name.clone() })
}

pub(crate) fn is_free(volume: &Volume) -> bool {
    volume.claim_ref.is_none() && volume.phase == VolumePhase::Available && !volume.deleting
}

impl Index {
    pub(crate) fn insert(&mut self, _: &Volumes, id: VolumeId, _: &Text, now: &Seen, held: bool) {
        if let Seen::Readable(_) = now {
            self.ids.insert(id);
            if held {
                self.held.insert(id);
            }
        }
    }
    pub(crate) fn remove(&mut self, _: &Volumes, id: VolumeId, _: &Text, _: &Seen) {
        self.ids.remove(&id);
        self.held.remove(&id);
    }
    pub(crate) fn hold(&mut self, _: &Volumes, id: VolumeId, held: bool) {
        if held {
            self.held.insert(id);
        } else {
            self.held.remove(&id);
        }
    }
    pub(crate) fn has_access_set(&self, set: AccessModes) -> bool {
        let _ = set;
        true
    }
    pub(crate) fn access_sets(&self, containing: AccessModes) -> Vec<AccessModes> {
        let mut sets: Vec<_> =
            (0..16).filter_map(AccessModes::from_bits).filter(|s| s.contains(containing)).collect();
        sets.sort_by_key(|s| (s.len(), *s));
        sets
    }
    fn sorted(&self, volumes: &Volumes) -> Vec<(Quantity, Text, VolumeId)> {
        let mut all: Vec<_> = self
            .ids
            .iter()
            .map(|id| {
                let v = volumes.indexed(*id);
                (v.capacity.unwrap_or_default(), v.name.clone(), *id)
            })
            .collect();
        all.sort();
        all
    }
    pub(crate) fn reserved_for(&self, volumes: &Volumes, key: &ClaimKey, uid: &Uid) -> Vec<VolumeId> {
        self.sorted(volumes)
            .into_iter()
            .map(|r| r.2)
            .filter(|id| {
                volumes.indexed(*id).claim_ref.as_ref().is_some_and(|r| {
                    r.namespace == key.namespace
                        && r.name == key.name
                        && r.uid.as_ref().is_none_or(|u| u == uid)
                })
            })
            .collect()
    }
    pub(crate) fn page(
        &self,
        volumes: &Volumes,
        query: &Query,
        after: Option<VolumeId>,
        limit: usize,
        mut each: impl FnMut(Row),
    ) -> bool {
        let mut left = limit;
        let after = after.map(|id| {
            let v = volumes.indexed(id);
            (v.capacity.unwrap_or_default(), v.name.clone())
        });
        for (capacity, name, id) in self.sorted(volumes) {
            let v = volumes.indexed(id);
            let fits = is_free(v)
                && v.class == query.class
                && v.mode == query.mode
                && v.attributes_class_or_empty() == &*query.attributes_class
                && v.access_set() == query.access_set
                && capacity >= query.at_least
                && query.labels.iter().all(|r| r.matches(v.labels.get(&r.key).map(|v| &**v)))
                && after.as_ref().is_none_or(|a| (capacity, &name) > (a.0, &a.1));
            if fits {
                if left == 0 {
                    return true;
                }
                left -= 1;
                each(Row { id, whole: capacity.whole, nanos: capacity.nanos, held: self.held.contains(&id) });
            }
        }
        false
    }
    pub(crate) fn tallies(&self, _: &Volumes, _: &Query, _: Option<&(ClaimKey, Uid)>) -> Vec<Tally> {
        Vec::new()
    }
}
