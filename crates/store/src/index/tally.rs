//! Why volumes do not meet a query, in numbers.
//!
//! Each volume is counted once, under the first reason that applies in the order of [`Reason`]: unreadable,
//! reserved for another, deleting, another class, another volume mode, another attributes class, access modes
//! missing, not available, too small, labels differ, in flight. If a volume is reserved for the claim that
//! asks, its class, phase and labels do not count. A volume to which none applies can be taken and is not
//! counted. [`Reason::WaitsForConsumer`] is about the claim and never counted here.
//!
//! Counts come from the lengths of lists, so that their cost grows with the number of buckets and not with
//! that of volumes. [`NEAREST_MAX`] volumes are named, of all reasons together: a decision is written down,
//! and a person who reads it wants the nearest. `explain` lists all.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use bindery_core::{ClaimKey, NEAREST_MAX, Query, Reason, Tally, Text, Uid, Volume};
use itertools::Itertools as _;

use super::Index;
use super::bucket::{Bucket, BucketKey, Free};
use super::ordered::{self, Ordered, Row};
use crate::state::{VolumeId, Volumes};

/// Buckets that are searched for the nearest volumes, at most; those of the query's class first. More there
/// are only where classes are made by the hundred, and then a volume of the 65th explains nothing.
const BUCKETS_MAX: usize = 64;

/// A query for tallies.
#[derive(Clone, Copy)]
pub(crate) struct TallyQuery<'a> {
    pub(crate) query: &'a Query,
    /// The claim that asks, where it is known: its volumes are not reserved for another.
    pub(crate) claim: Option<&'a (ClaimKey, Uid)>,
    /// Whether the decision in flight that has picked a volume is one for this claim.
    pub(crate) is_picked_for_claim: &'a dyn Fn(&Text) -> bool,
}

/// A volume that was not chosen, and how near it came: fewest differing properties first; then the large
/// enough, smallest first; then the too small, largest first.
struct Near<'a> {
    differences: usize,
    row: &'a Row,
    too_small: bool,
}

#[derive(Default)]
struct Count<'a> {
    count: usize,
    /// Runs of volumes, each with the nearest first.
    near: Vec<Box<dyn Iterator<Item = Near<'a>> + 'a>>,
}

struct ReasonCounts<'a> {
    asked: TallyQuery<'a>,
    /// The volumes whose claimRef names the claim that asks.
    own: &'a BTreeSet<VolumeId>,
    by_reason: BTreeMap<Reason, Count<'a>>,
}

impl Index {
    /// See the documentation of this module.
    pub(crate) fn tallies(&self, volumes: &Volumes, asked: TallyQuery<'_>) -> Vec<Tally> {
        let query = asked.query;
        let own = asked.claim.map(|(key, uid)| self.reserved_for(volumes, key, uid)).unwrap_or_default();
        let own_rows: Vec<Row> = own.iter().map(|id| Row::new(*id, volumes.indexed(*id))).collect();
        let own = own.into_iter().collect();
        let mut counts = ReasonCounts { asked, own: &own, by_reason: BTreeMap::new() };
        let same = self.buckets.iter().filter(|(key, _)| key.class == query.class);
        let other = self.buckets.iter().filter(|(key, _)| key.class != query.class);
        for (position, (key, bucket)) in same.chain(other).enumerate() {
            counts.bucket(key, bucket, position < BUCKETS_MAX);
        }
        for row in &own_rows {
            let volume = volumes.indexed(row.id);
            if let Some(reason) = reason_of_own(volume, query) {
                counts.add(reason, 1);
                counts.near(reason, differences_of_own(volume, query).count(), std::iter::once(row));
            }
        }
        counts.finish(&self.unreadable)
    }
}

impl<'a> ReasonCounts<'a> {
    fn add(&mut self, reason: Reason, count: usize) {
        self.by_reason.entry(reason).or_default().count += count;
    }

    /// Remembers some volumes, which come nearest first.
    fn near(&mut self, reason: Reason, differences: usize, rows: impl Iterator<Item = &'a Row> + 'a) {
        let at_least = self.asked.query.at_least;
        let near = rows.map(move |row| Near { differences, row, too_small: row.is_below(at_least) });
        self.by_reason.entry(reason).or_default().near.push(Box::new(near));
    }

    /// All volumes of a list have one reason.
    fn list(&mut self, reason: Reason, list: &'a Ordered, differences: Option<usize>) {
        if list.is_empty() {
            return;
        }
        self.add(reason, list.len());
        if let Some(differences) = differences {
            let at = list.at_least(self.asked.query.at_least);
            self.near(reason, differences, list.rows_from(at).chain(list.rows_before(at)));
        }
    }

    fn bucket(&mut self, key: &BucketKey, bucket: &'a Bucket, named: bool) {
        let query = self.asked.query;
        let differences = key.differences(query).count();
        let named = named.then_some(differences);
        self.taken(&bucket.taken, named);
        self.list(Reason::Deleting, &bucket.deleting, named);
        if let Some(reason) = key.differences(query).next() {
            self.list(reason, &bucket.unavailable, named);
            self.list(reason, bucket.free.order(), named);
        } else {
            self.list(Reason::NotAvailable, &bucket.unavailable, named);
            self.alike(&bucket.free, named);
        }
    }

    fn taken(&mut self, list: &'a Ordered, named: Option<usize>) {
        if list.is_empty() {
            return;
        }
        let at = list.at_least(self.asked.query.at_least);
        self.add(Reason::ReservedForOther, list.len());
        if let Some(differences) = named {
            let own = self.own;
            let rows = list.rows_from(at).chain(list.rows_before(at));
            self.near(Reason::ReservedForOther, differences, rows.filter(|row| !own.contains(&row.id)));
        }
    }

    /// Free volumes that are alike in everything that has to be equal.
    fn alike(&mut self, free: &'a Free, named: Option<usize>) {
        let TallyQuery { query, is_picked_for_claim, .. } = self.asked;
        let at = free.order().at_least(query.at_least);
        let too_small = free.order().rank(at);
        let ordinals = free.matching(&query.labels, &[]);
        let large_enough = free.order().len() - too_small;
        let meeting = ordinals.as_ref().map_or(large_enough, |ordinals| free.count(at, ordinals));
        let picked = free.picked_of(ordinals.as_ref());
        let in_flight: Vec<&Row> =
            free.select(at, Some(&picked)).filter(|row| !is_picked_for_claim(&row.name)).collect();
        self.add(Reason::TooSmall, too_small);
        self.add(Reason::SelectorDiffers, large_enough - meeting);
        self.add(Reason::InFlight, in_flight.len());
        let Some(differences) = named else { return };
        self.near(Reason::TooSmall, differences, free.order().rows_before(at));
        self.near(Reason::InFlight, differences, in_flight.into_iter());
        if let Some(ordinals) = &ordinals {
            let others = free.others(ordinals);
            let rows: Vec<&Row> = free.select(at, Some(&others)).take(NEAREST_MAX).collect();
            self.near(Reason::SelectorDiffers, differences, rows.into_iter());
        }
    }

    fn finish(mut self, unreadable: &BTreeSet<Text>) -> Vec<Tally> {
        // The volumes of the asking claim were counted again, under what else is wrong with them.
        if let Some(reserved) = self.by_reason.get_mut(&Reason::ReservedForOther) {
            reserved.count -= self.own.len();
        }
        let mut tallies = vec![nameable(Reason::Unreadable, unreadable.len(), unreadable.iter())];
        tallies.extend(self.by_reason.into_iter().map(|(reason, Count { count, near })| {
            let nearest = near.into_iter().kmerge_by(|one, other| one.compare(other).is_lt());
            nameable(reason, count, nearest.map(|near| &near.row.name))
        }));
        tallies.retain(|(tally, _)| tally.count > 0);
        name_nearest(&mut tallies);
        tallies.into_iter().map(|(tally, _)| tally).collect()
    }
}

impl Near<'_> {
    fn compare(&self, other: &Self) -> Ordering {
        (self.differences, self.too_small).cmp(&(other.differences, other.too_small)).then_with(|| {
            let by_size = ordered::compare(self.row, other.row);
            if self.too_small { by_size.reverse() } else { by_size }
        })
    }
}

/// A tally, and the names that it may get, nearest first.
type Nameable<'a> = (Tally, Box<dyn Iterator<Item = &'a Text> + 'a>);

fn nameable<'a>(reason: Reason, count: usize, names: impl Iterator<Item = &'a Text> + 'a) -> Nameable<'a> {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    (Tally { reason, count, nearest: Vec::new() }, Box::new(names))
}

/// Names the nearest, one of each reason in turn, so that what stands alone under its reason is named however
/// many came nearer under another.
fn name_nearest(tallies: &mut [Nameable<'_>]) {
    let mut left = NEAREST_MAX;
    loop {
        let before = left;
        for (tally, names) in &mut *tallies {
            if left > 0
                && let Some(name) = names.next()
            {
                tally.nearest.push(name.clone());
                left -= 1;
            }
        }
        if left == before {
            return;
        }
    }
}

/// Why the asking claim cannot have a volume that is reserved for it.
fn reason_of_own(volume: &Volume, query: &Query) -> Option<Reason> {
    if volume.deleting {
        return Some(Reason::Deleting);
    }
    differences_of_own(volume, query)
        .next()
        .or_else(|| (volume.capacity.unwrap_or_default() < query.at_least).then_some(Reason::TooSmall))
}

/// The properties that differ from what the claim asks for, of a volume that is reserved for it: its class
/// may.
fn differences_of_own(volume: &Volume, query: &Query) -> impl Iterator<Item = Reason> + use<> {
    BucketKey::of_volume(volume).differences(query).filter(|reason| *reason != Reason::ClassDiffers)
}

impl BucketKey {
    /// The properties that differ from what is asked for, in the order of [`Reason`].
    fn differences(&self, query: &Query) -> impl Iterator<Item = Reason> + use<> {
        [
            (self.class != query.class, Reason::ClassDiffers),
            (self.mode != query.mode, Reason::VolumeModeDiffers),
            (self.attributes_class != query.attributes_class, Reason::AttributesClassDiffers),
            (!self.access_set.contains(query.access_set), Reason::AccessModesMissing),
        ]
        .into_iter()
        .filter_map(|(differs, reason)| differs.then_some(reason))
    }
}
