//! The volume index: what engines ask about many volumes at once.

mod bucket;
mod columns;
mod ids;
mod ordered;
mod rows;
mod tally;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use bindery_core::steer::steered_to;
use bindery_core::{
    AccessModes, Cell, ClaimKey, ClaimRef, ColumnRequirement, ColumnSet, Query, Text, Uid, Volume,
    VolumePhase,
};

use self::bucket::{Bucket, BucketKey};
pub(crate) use self::ids::Ids;
use self::ordered::Ordered;
pub(crate) use self::ordered::Row;
pub(crate) use self::tally::TallyQuery;
use crate::state::{VolumeId, Volumes};

/// All volumes as the overlay has them, by what engines search them by.
///
/// Upstream groups volumes by access-mode set and scans; here they are grouped by
/// everything that has to be equal, and sorted by capacity and name within a group.
#[derive(Debug, Default)]
pub(crate) struct Index {
    buckets: BTreeMap<BucketKey, Bucket>,
    /// What the rows of free volumes show; `None` where no policies are loaded.
    columns: Option<Arc<ColumnSet>>,
    /// By the claim that claimRef names.
    reserved: HashMap<ClaimKey, Ids>,
    /// By the claims whose steering labels they have.
    labelled: HashMap<ClaimKey, Ids>,
    /// How many readable volumes of any phase have each access-mode set, by its bits.
    access_sets: [u32; 16],
    /// Names of the volumes that cannot be read.
    pub(crate) unreadable: BTreeSet<Text>,
}

/// A volume as the overlay has it, from before or after a change.
#[derive(Clone, Debug)]
pub(crate) enum VolumeState {
    Absent,
    Unreadable,
    Readable(Arc<Volume>),
}

/// What can be done with a volume; where several apply, the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// It has a claimRef.
    Taken,
    /// It is marked for deletion.
    Deleting,
    /// Its phase is not Available.
    Unavailable,
    /// It can be taken.
    Free,
}

impl Availability {
    pub(crate) fn of(volume: &Volume) -> Self {
        if volume.claim_ref.is_some() {
            Self::Taken
        } else if volume.deleting {
            Self::Deleting
        } else if volume.phase != VolumePhase::Available {
            Self::Unavailable
        } else {
            Self::Free
        }
    }
}

impl VolumeState {
    pub(crate) fn volume(&self) -> Option<&Arc<Volume>> {
        match self {
            Self::Readable(volume) => Some(volume),
            Self::Absent | Self::Unreadable => None,
        }
    }

    /// Whether the index has the same of both, so that nothing that it answers changes.
    pub(crate) fn is_indexed_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Absent, Self::Absent) | (Self::Unreadable, Self::Unreadable) => true,
            (Self::Readable(a), Self::Readable(b)) => {
                Availability::of(a) == Availability::of(b)
                    && a.capacity.unwrap_or_default() == b.capacity.unwrap_or_default()
                    && a.access_set() == b.access_set()
                    && a.class == b.class
                    && a.mode == b.mode
                    && a.attributes_class_or_empty() == b.attributes_class_or_empty()
                    && a.claim_ref == b.claim_ref
                    && a.labels == b.labels
                    // Policies read these.
                    && a.facts == b.facts
                    && a.policy == b.policy
                    && a.source == b.source
            }
            _ => false,
        }
    }
}

/// The claim that claimRef names.
pub(crate) fn claim_of(volume: &Volume) -> Option<ClaimKey> {
    volume.claim_ref.as_ref().map(ClaimRef::claim_key)
}

impl Index {
    /// Has the rows of free volumes show these columns.
    pub(crate) fn show(&mut self, volumes: &Volumes, columns: Arc<ColumnSet>) {
        self.columns = Some(columns);
        self.buckets.values_mut().for_each(|bucket| bucket.free.show(volumes, &self.columns));
    }

    /// Whether rows show these columns.
    pub(crate) fn shows(&self, columns: &Arc<ColumnSet>) -> bool {
        self.columns.as_ref().is_some_and(|shown| Arc::ptr_eq(shown, columns))
    }

    pub(crate) fn insert(
        &mut self,
        volumes: &Volumes,
        id: VolumeId,
        name: &Text,
        now: &VolumeState,
        picked: bool,
    ) {
        let volume = match now {
            VolumeState::Absent => return,
            VolumeState::Unreadable => {
                self.unreadable.insert(name.clone());
                return;
            }
            VolumeState::Readable(volume) => volume,
        };
        self.access_sets[set_index(volume.access_set())] += 1;
        for (by_claim, claims) in self.by_claims(volume) {
            for claim in claims {
                by_claim.entry(claim).and_modify(|ids| ids.insert(id.0)).or_insert(Ids::one(id.0));
            }
        }
        let bucket = self.buckets.entry(BucketKey::of_volume(volume));
        let bucket = bucket.or_insert_with(|| {
            let mut bucket = Bucket::default();
            bucket.free.show(volumes, &self.columns);
            bucket
        });
        match bucket.list_mut(Availability::of(volume)) {
            // No question selects from these lists by ordinal.
            Some(list) => {
                list.insert(Row::new(id, volume), |_| {});
            }
            None => bucket.free.insert(volumes, id, volume, picked),
        }
    }

    /// Takes out a volume, which was inserted as `was`. The other volumes are as they were inserted.
    pub(crate) fn remove(&mut self, volumes: &Volumes, id: VolumeId, name: &Text, was: &VolumeState) {
        let volume = match was {
            VolumeState::Absent => return,
            VolumeState::Unreadable => {
                self.unreadable.remove(name);
                return;
            }
            VolumeState::Readable(volume) => volume,
        };
        self.access_sets[set_index(volume.access_set())] -= 1;
        for (by_claim, claims) in self.by_claims(volume) {
            for claim in claims {
                if by_claim.get_mut(&claim).is_some_and(|ids| ids.remove(id.0)) {
                    by_claim.remove(&claim);
                }
            }
        }
        let key = BucketKey::of_volume(volume);
        let Some(bucket) = self.buckets.get_mut(&key) else { return };
        match bucket.list_mut(Availability::of(volume)) {
            Some(list) => {
                list.remove(&Row::new(id, volume), |_| {});
            }
            None => bucket.free.remove(volumes, id, volume),
        }
        if bucket.is_empty() {
            self.buckets.remove(&key);
        }
    }

    /// A decision in flight picks the volume, or has ended.
    pub(crate) fn set_picked(&mut self, id: VolumeId, volume: &Volume, picked: bool) {
        if let Some(bucket) = self.buckets.get_mut(&BucketKey::of_volume(volume)) {
            bucket.free.set_picked(id, volume, picked);
        }
    }

    pub(crate) fn has_access_set(&self, set: AccessModes) -> bool {
        self.access_sets[set_index(set)] > 0
    }

    /// The sets that exist and contain this one, fewest modes first, then by bits.
    pub(crate) fn access_sets(&self, containing: AccessModes) -> Vec<AccessModes> {
        let mut sets: Vec<AccessModes> = (0..)
            .zip(self.access_sets)
            .filter(|(_, count)| *count > 0)
            .filter_map(|(bits, _)| AccessModes::from_bits(bits))
            .filter(|set| set.contains(containing))
            .collect();
        sets.sort_unstable_by_key(|set| (set.len(), set.bits()));
        sets
    }

    /// How many volumes have a claimRef of the claim's name.
    pub(crate) fn count_reserved_for(&self, claim: &ClaimKey) -> u64 {
        self.reserved.get(claim).map_or(0, Ids::len)
    }

    /// The volumes whose claimRef has the claim's namespace and name, in no order.
    pub(crate) fn naming(&self, claim: &ClaimKey) -> impl Iterator<Item = VolumeId> {
        self.reserved.get(claim).into_iter().flat_map(|ids| ids.iter().map(VolumeId))
    }

    /// The volumes with the label that steers the claim, in no order.
    pub(crate) fn labelled(&self, claim: &ClaimKey) -> impl Iterator<Item = VolumeId> {
        self.labelled.get(claim).into_iter().flat_map(|ids| ids.iter().map(VolumeId))
    }

    /// The indexes by claims, each with those of a volume.
    fn by_claims(&mut self, volume: &Volume) -> [(&mut HashMap<ClaimKey, Ids>, Vec<ClaimKey>); 2] {
        let labelled = steered_to(volume).map(|(claim, _)| claim).collect();
        [(&mut self.reserved, Vec::from_iter(claim_of(volume))), (&mut self.labelled, labelled)]
    }

    /// The volumes whose claimRef names the claim, by its UID or by its name alone, in ascending
    /// (capacity, name).
    pub(crate) fn reserved_for(&self, volumes: &Volumes, claim: &ClaimKey, uid: &Uid) -> Vec<VolumeId> {
        let Some(ids) = self.reserved.get(claim) else { return Vec::new() };
        let names_uid = |volume: &Volume| {
            volume.claim_ref.as_ref().is_some_and(|claim_ref| claim_ref.uid.as_ref().is_none_or(|u| u == uid))
        };
        let mut rows: Vec<Row> = ids
            .iter()
            .map(|id| (VolumeId(id), volumes.indexed(VolumeId(id))))
            .filter(|(_, volume)| names_uid(volume))
            .map(|(id, volume)| Row::new(id, volume))
            .collect();
        rows.sort_unstable_by(ordered::compare);
        rows.into_iter().map(|row| row.id).collect()
    }

    /// Gives `each` the free volumes that meet the query and the requirements on indexed columns, in
    /// ascending (capacity, name), those after `after`, each with whether a decision in flight has picked it
    /// and with what policies are shown of it, until it breaks. Returns whether it did.
    pub(crate) fn scan(
        &self,
        query: &Query,
        requirements: &[ColumnRequirement],
        after: Option<(VolumeId, &Volume)>,
        mut each: impl FnMut(&Row, bool, &[Cell]) -> ControlFlow<()>,
    ) -> bool {
        let Some(bucket) = self.buckets.get(&BucketKey::of_query(query)) else { return false };
        let free = &bucket.free;
        let mut from = free.order().at_least(query.at_least);
        if let Some((id, volume)) = after {
            from = Ordered::later(from, free.order().after(&Row::new(id, volume)));
        }
        let ordinals = free.matching(&query.labels, requirements);
        let mut rows = free.select(from, ordinals.as_ref());
        rows.any(|row| each(row, free.is_picked(row), free.cells(row)).is_break())
    }
}

impl Bucket {
    /// The list of the volumes of that availability; `None` for the free ones, which are more than a list.
    fn list_mut(&mut self, availability: Availability) -> Option<&mut Ordered> {
        match availability {
            Availability::Taken => Some(&mut self.taken),
            Availability::Deleting => Some(&mut self.deleting),
            Availability::Unavailable => Some(&mut self.unavailable),
            Availability::Free => None,
        }
    }
}

fn set_index(set: AccessModes) -> usize {
    set.bits() as usize
}
