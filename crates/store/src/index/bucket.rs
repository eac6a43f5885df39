//! The volumes that are alike in everything but capacity, name and labels.

use bindery_core::{AccessModes, Query, Requirement, Text, Volume, VolumeMode};
use roaring::RoaringBitmap;

use super::labels::Labels;
use super::ordered::{Move, Ordered, Position, Row};
use crate::state::{VolumeId, Volumes};

/// What the volumes of a bucket have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BucketKey {
    pub(super) class: Text,
    pub(super) mode: VolumeMode,
    pub(super) attributes_class: Text,
    pub(super) access_set: AccessModes,
}

/// The volumes of a bucket by what can be done with them.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// Can be taken.
    pub(super) free: Free,
    /// Without claimRef, but not in phase Available.
    pub(super) unavailable: Ordered,
    /// Without claimRef, and marked for deletion.
    pub(super) deleting: Ordered,
    /// With a claimRef.
    pub(super) taken: Ordered,
}

/// Free volumes, searched by capacity and labels.
#[derive(Debug, Default)]
pub(super) struct Free {
    order: Ordered,
    labels: Labels,
    /// Slots of all of them.
    slots: RoaringBitmap,
    /// Slots of those that a decision in flight has picked.
    picked: RoaringBitmap,
}

impl BucketKey {
    pub(super) fn of_volume(volume: &Volume) -> Self {
        Self {
            class: volume.class.clone(),
            mode: volume.mode,
            attributes_class: volume.attributes_class.clone().unwrap_or_default(),
            access_set: volume.access_set(),
        }
    }

    pub(super) fn of_query(query: &Query) -> Self {
        Self {
            class: query.class.clone(),
            mode: query.mode,
            attributes_class: query.attributes_class.clone(),
            access_set: query.access_set,
        }
    }
}

impl Bucket {
    pub(super) fn is_empty(&self) -> bool {
        self.free.order.is_empty()
            && self.unavailable.is_empty()
            && self.deleting.is_empty()
            && self.taken.is_empty()
    }
}

impl Free {
    pub(super) fn order(&self) -> &Ordered {
        &self.order
    }

    pub(super) fn insert(&mut self, volumes: &Volumes, id: VolumeId, volume: &Volume, picked: bool) {
        let Self { order, labels, slots, picked: others } = self;
        let slot = order.insert(Row::new(id, volume), |step| relocate(labels, slots, others, volumes, step));
        labels.insert(slot, &volume.labels);
        slots.insert(slot);
        if picked {
            others.insert(slot);
        }
    }

    /// Takes out a volume, which was inserted as it is given.
    pub(super) fn remove(&mut self, volumes: &Volumes, id: VolumeId, volume: &Volume) {
        let Self { order, labels, slots, picked } = self;
        let mut steps = Vec::new();
        let Some(slot) = order.remove(&Row::new(id, volume), |step| steps.push(step)) else { return };
        labels.remove(slot, &volume.labels);
        slots.remove(slot);
        picked.remove(slot);
        for step in steps {
            relocate(labels, slots, picked, volumes, step);
        }
    }

    pub(super) fn set_picked(&mut self, id: VolumeId, volume: &Volume, picked: bool) {
        let Some(row) = self.order.find(&Row::new(id, volume)) else { return };
        if picked {
            self.picked.insert(row.slot);
        } else {
            self.picked.remove(row.slot);
        }
    }

    pub(super) fn is_picked(&self, row: &Row) -> bool {
        self.picked.contains(row.slot)
    }

    /// The slots whose labels meet the requirements; `None` where there are no requirements.
    pub(super) fn matching(&self, requirements: &[Requirement]) -> Option<RoaringBitmap> {
        (!requirements.is_empty()).then(|| self.labels.matching(requirements, &self.slots))
    }

    /// The slots that are not in this set.
    pub(super) fn others(&self, slots: &RoaringBitmap) -> RoaringBitmap {
        &self.slots - slots
    }

    /// The slots of this set, or of all, that a decision in flight has picked.
    pub(super) fn picked_of(&self, slots: Option<&RoaringBitmap>) -> RoaringBitmap {
        slots.map_or_else(|| self.picked.clone(), |slots| &self.picked & slots)
    }

    /// The rows after a place whose slots are in the set, ascending. Chunks without any are skipped.
    pub(super) fn select<'a, 's>(
        &'a self,
        from: Position,
        slots: Option<&'s RoaringBitmap>,
    ) -> impl Iterator<Item = &'a Row> + use<'a, 's> {
        self.order
            .chunks_from(from)
            .filter(move |(_, range)| slots.is_none_or(|slots| slots.range_cardinality(range.clone()) > 0))
            .flat_map(|(rows, _)| rows)
            .filter(move |row| slots.is_none_or(|slots| slots.contains(row.slot)))
    }

    /// How many rows after a place have their slots in the set.
    pub(super) fn count(&self, from: Position, slots: &RoaringBitmap) -> usize {
        let mut count = 0;
        for (index, (rows, range)) in self.order.chunks_from(from).enumerate() {
            count += if index == 0 {
                rows.iter().filter(|row| slots.contains(row.slot)).count()
            } else {
                slots.range_cardinality(range) as usize
            };
        }
        count
    }
}

/// Follows a row that was given another slot.
fn relocate(
    labels: &mut Labels,
    slots: &mut RoaringBitmap,
    picked: &mut RoaringBitmap,
    volumes: &Volumes,
    Move { id, from, to }: Move,
) {
    let volume = volumes.indexed(id);
    labels.remove(from, &volume.labels);
    labels.insert(to, &volume.labels);
    slots.remove(from);
    slots.insert(to);
    if picked.remove(from) {
        picked.insert(to);
    }
}
