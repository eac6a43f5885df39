//! The keys that wait for a free volume, in the order in which they began to wait.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::ops::Bound;
use std::sync::Arc;

use bindery_core::{Quantity, Text, Volume, VolumeMode};
use itertools::Itertools as _;

use super::{Dispatcher, Offer};
use crate::change::Wanted;

/// A place in the line. The key that has waited longest has the smallest.
pub(super) type Place = u64;

/// Before all places.
const FRONT: Place = 0;

/// The keys that wait, and the volume that is offered to each.
#[derive(Debug)]
pub(super) struct Waiting<K> {
    keys: BTreeMap<Place, K>,
    last: Place,
    queries: Queries,
    /// One volume for a key at most.
    offered: HashMap<K, OpenOffer>,
    /// The same, by the volume's name.
    offered_by_volume: HashMap<Text, K>,
}

/// A volume that is offered to a key, until the key has been decided.
#[derive(Debug)]
struct OpenOffer {
    volume: Text,
    offer: Offer,
    place: Place,
}

/// Queries, by what volumes have to be equal in, and then by size: a volume that is offered finds those that
/// it meets without looking at others. Equal queries, of a thousand equal claims, are one.
#[derive(Debug, Default)]
struct Queries {
    groups: HashMap<Group, Sizes>,
}

/// Queries of a group, by whole bytes and nanos of what they ask for at least.
type Sizes = BTreeMap<(u64, u32), HashMap<Wanted, BTreeSet<Place>>>;

/// Class, volume mode and attributes class.
type Group = (Text, VolumeMode, Text);

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
            last: FRONT,
            queries: Queries::default(),
            offered: HashMap::new(),
            offered_by_volume: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> Waiting<K> {
    /// Lets a key wait, at the end of the line unless it has a place already.
    pub(super) fn insert(&mut self, key: &K, wanted: &mut [Wanted], place: Option<Place>) -> Place {
        let place = place.unwrap_or_else(|| {
            self.last += 1;
            self.last
        });
        self.keys.insert(place, key.clone());
        wanted.iter_mut().for_each(|wanted| self.queries.insert(wanted, place));
        place
    }

    pub(super) fn remove(&mut self, wanted: &[Wanted], place: Place) {
        self.keys.remove(&place);
        wanted.iter().for_each(|wanted| self.queries.remove(wanted, place));
    }

    /// Offers a volume to those that it fits, from the front of the line.
    pub(super) fn offer(&mut self, volume: &Arc<Volume>, offer: Offer, dispatcher: &impl Dispatcher<K>) {
        if let Some(key) = self.offered_by_volume.remove(&volume.name) {
            self.offered.remove(&key);
        }
        self.offer_behind(FRONT, volume, offer, dispatcher);
    }

    /// A key has been decided: a volume that was offered to it, and that it has not taken, is offered to
    /// those behind it.
    pub(super) fn pass_on(&mut self, key: &K, dispatcher: &impl Dispatcher<K>) {
        let Some(OpenOffer { volume, offer, place }) = self.offered.remove(key) else { return };
        self.offered_by_volume.remove(&volume);
        if let Some(volume) = dispatcher.free(&volume) {
            self.offer_behind(place, &volume, offer, dispatcher);
        }
    }

    fn offer_behind(
        &mut self,
        place: Place,
        volume: &Arc<Volume>,
        offer: Offer,
        dispatcher: &impl Dispatcher<K>,
    ) {
        for place in self.queries.met_by(volume, place) {
            let Some(key) = self.keys.get(&place) else { continue };
            // A key to which another volume is offered is decided after this one became free, so it sees
            // both. Unless the other is taken by now, this one is offered to the next key.
            let is_busy = self.offered.get(key).is_some_and(|open| dispatcher.free(&open.volume).is_some());
            if !dispatcher.ask(key, offer) || is_busy {
                continue;
            }
            let offered = OpenOffer { volume: volume.name.clone(), offer, place };
            if let Some(earlier) = self.offered.insert(key.clone(), offered) {
                self.offered_by_volume.remove(&earlier.volume);
            }
            self.offered_by_volume.insert(volume.name.clone(), key.clone());
            return;
        }
    }
}

impl Queries {
    fn insert(&mut self, wanted: &mut Wanted, place: Place) {
        let queries = self.groups.entry(group(wanted)).or_default().entry(size(wanted)).or_default();
        if let Some((equal, _)) = queries.get_key_value(wanted) {
            // Equal queries share one allocation.
            *wanted = equal.clone();
        }
        queries.entry(wanted.clone()).or_default().insert(place);
    }

    fn remove(&mut self, wanted: &Wanted, place: Place) {
        let group = group(wanted);
        let Some(sizes) = self.groups.get_mut(&group) else { return };
        if let Some(queries) = sizes.get_mut(&size(wanted)) {
            if queries.get_mut(wanted).is_some_and(|places| places.remove(&place) && places.is_empty()) {
                queries.remove(wanted);
            }
            if queries.is_empty() {
                sizes.remove(&size(wanted));
            }
        }
        if sizes.is_empty() {
            self.groups.remove(&group);
        }
    }

    /// The places behind this one whose query the volume meets, in order. A place with several such queries
    /// comes several times.
    fn met_by(&self, volume: &Volume, behind: Place) -> impl Iterator<Item = Place> {
        let attributes_class = volume.attributes_class.clone().unwrap_or_default();
        let group = self.groups.get(&(volume.class.clone(), volume.mode, attributes_class));
        let capacity = volume.capacity.unwrap_or(Quantity::ZERO);
        let sizes = group.into_iter().flat_map(|sizes| sizes.range(..=(capacity.whole, capacity.nanos)));
        let met = sizes.flat_map(|(_, queries)| queries).filter(|(wanted, _)| wanted.is_met_by(volume));
        met.map(|(_, places)| places.range((Bound::Excluded(behind), Bound::Unbounded)).copied()).kmerge()
    }
}

fn group(wanted: &Wanted) -> Group {
    (wanted.query.class.clone(), wanted.query.mode, wanted.query.attributes_class.clone())
}

fn size(wanted: &Wanted) -> (u64, u32) {
    (wanted.query.at_least.whole, wanted.query.at_least.nanos)
}
