//! The volumes that are alike in everything but capacity, name, labels and what policies read.

use std::sync::Arc;

use bindery_core::{
    AccessModes, Cell, ColumnRequirement, ColumnSet, Query, Requirement, Text, Volume, VolumeMode,
};
use roaring::RoaringBitmap;

use super::columns::Columns;
use super::ordered::{Move, Ordered, Position, Row};
use super::rows::Rows;
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

/// Free volumes, searched by capacity, labels and what policies read.
#[derive(Debug, Default)]
pub(super) struct Free {
    order: Ordered,
    columns: Columns,
    /// Ordinals of all of them.
    ordinals: RoaringBitmap,
    /// Ordinals of those that a decision in flight has picked.
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
    /// Has rows show these columns.
    pub(super) fn show(&mut self, volumes: &Volumes, columns: &Option<Arc<ColumnSet>>) {
        self.columns.rows = Rows::new(columns.clone());
        for row in self.order.rows_from(Position::default()) {
            self.columns.rows.insert(row.ordinal, volumes.indexed(row.id));
        }
    }

    /// What policies are shown of a row.
    pub(super) fn cells(&self, row: &Row) -> &[Cell] {
        self.columns.rows.get(row.ordinal)
    }

    pub(super) fn order(&self) -> &Ordered {
        &self.order
    }

    pub(super) fn insert(&mut self, volumes: &Volumes, id: VolumeId, volume: &Volume, picked: bool) {
        let Self { order, columns, ordinals, picked: others } = self;
        let ordinal =
            order.insert(Row::new(id, volume), |step| relocate(columns, ordinals, others, volumes, step));
        columns.insert(ordinal, volume);
        ordinals.insert(ordinal);
        if picked {
            others.insert(ordinal);
        }
    }

    /// Takes out a volume, which was inserted as it is given.
    pub(super) fn remove(&mut self, volumes: &Volumes, id: VolumeId, volume: &Volume) {
        let Self { order, columns, ordinals, picked } = self;
        let mut steps = Vec::new();
        let Some(ordinal) = order.remove(&Row::new(id, volume), |step| steps.push(step)) else { return };
        columns.remove(ordinal, volume);
        ordinals.remove(ordinal);
        picked.remove(ordinal);
        for step in steps {
            relocate(columns, ordinals, picked, volumes, step);
        }
    }

    pub(super) fn set_picked(&mut self, id: VolumeId, volume: &Volume, picked: bool) {
        let Some(row) = self.order.find(&Row::new(id, volume)) else { return };
        if picked {
            self.picked.insert(row.ordinal);
        } else {
            self.picked.remove(row.ordinal);
        }
    }

    pub(super) fn is_picked(&self, row: &Row) -> bool {
        self.picked.contains(row.ordinal)
    }

    /// The ordinals that meet the requirements on labels and on indexed columns; `None` where there are none.
    pub(super) fn matching(
        &self,
        labels: &[Requirement],
        columns: &[ColumnRequirement],
    ) -> Option<RoaringBitmap> {
        self.columns.matching(labels, columns, &self.ordinals)
    }

    /// The ordinals that are not in this set.
    pub(super) fn others(&self, ordinals: &RoaringBitmap) -> RoaringBitmap {
        &self.ordinals - ordinals
    }

    /// The ordinals of this set, or of all, that a decision in flight has picked.
    pub(super) fn picked_of(&self, ordinals: Option<&RoaringBitmap>) -> RoaringBitmap {
        ordinals.map_or_else(|| self.picked.clone(), |ordinals| &self.picked & ordinals)
    }

    /// The rows after a place whose ordinals are in the set, ascending. Chunks without any are skipped.
    pub(super) fn select<'a, 's>(
        &'a self,
        from: Position,
        ordinals: Option<&'s RoaringBitmap>,
    ) -> impl Iterator<Item = &'a Row> + use<'a, 's> {
        self.order
            .chunks_from(from)
            .filter(move |(_, range)| {
                ordinals.is_none_or(|ordinals| ordinals.range_cardinality(range.clone()) > 0)
            })
            .flat_map(|(rows, _)| rows)
            .filter(move |row| ordinals.is_none_or(|ordinals| ordinals.contains(row.ordinal)))
    }

    /// How many rows after a place have their ordinals in the set.
    pub(super) fn count(&self, from: Position, ordinals: &RoaringBitmap) -> usize {
        let mut count = 0;
        for (index, (rows, range)) in self.order.chunks_from(from).enumerate() {
            count += if index == 0 {
                rows.iter().filter(|row| ordinals.contains(row.ordinal)).count()
            } else {
                ordinals.range_cardinality(range) as usize
            };
        }
        count
    }
}

/// Follows a row that was given another ordinal.
fn relocate(
    columns: &mut Columns,
    ordinals: &mut RoaringBitmap,
    picked: &mut RoaringBitmap,
    volumes: &Volumes,
    Move { id, from, to }: Move,
) {
    let volume = volumes.indexed(id);
    columns.remove(from, volume);
    columns.insert(to, volume);
    ordinals.remove(from);
    ordinals.insert(to);
    if picked.remove(from) {
        picked.insert(to);
    }
}
