//! The keys that wait for a free volume, in the order in which they began to wait.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, btree_set};
use std::hash::Hash;
use std::ops::Bound;
use std::sync::Arc;

use bindery_core::{Quantity, Text, Volume, VolumeMode};

use super::{Dispatcher, Offer};
use crate::change::Wanted;

/// A place in the line. The key that has waited longest has the smallest.
pub(super) type Place = u64;

/// Before all places.
const FRONT: Place = 0;

/// The keys that wait, and the volume that each is being asked about.
#[derive(Debug)]
pub(super) struct Waiting<K> {
    keys: BTreeMap<Place, K>,
    last: Place,
    queries: Queries,
    /// One volume for a key at most.
    asked: HashMap<K, Asked>,
    /// The same, by the volume's name.
    asked_by_volume: HashMap<Text, K>,
}

/// What a key is asked, until it has been decided.
#[derive(Debug)]
struct Asked {
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
            asked: HashMap::new(),
            asked_by_volume: HashMap::new(),
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
        if let Some(key) = self.asked_by_volume.remove(&volume.name) {
            self.asked.remove(&key);
        }
        self.offer_behind(FRONT, volume, offer, dispatcher);
    }

    /// A key has been decided: what it was asked about and has not taken is offered to those behind it.
    pub(super) fn pass_on(&mut self, key: &K, dispatcher: &impl Dispatcher<K>) {
        let Some(Asked { volume, offer, place }) = self.asked.remove(key) else { return };
        self.asked_by_volume.remove(&volume);
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
            // A key that is asked about another volume is decided after this one became free, so it sees
            // both. Unless that one is taken by now, the next key is asked about this one.
            let is_busy = self.asked.get(key).is_some_and(|asked| dispatcher.free(&asked.volume).is_some());
            if !dispatcher.ask(key, offer) || is_busy {
                continue;
            }
            let asked = Asked { volume: volume.name.clone(), offer, place };
            if let Some(earlier) = self.asked.insert(key.clone(), asked) {
                self.asked_by_volume.remove(&earlier.volume);
            }
            self.asked_by_volume.insert(volume.name.clone(), key.clone());
            return;
        }
    }
}

impl Queries {
    fn insert(&mut self, wanted: &mut Wanted, place: Place) {
        let queries = self.groups.entry(group(wanted)).or_default().entry(size(wanted)).or_default();
        if let Some((equal, _)) = queries.get_key_value(wanted) {
            // Of equal queries one is kept.
            wanted.query = Arc::clone(&equal.query);
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

    /// The places behind this one whose query the volume meets, in order.
    fn met_by(&self, volume: &Volume, behind: Place) -> Merged<'_> {
        let attributes_class = volume.attributes_class.clone().unwrap_or_default();
        let group = self.groups.get(&(volume.class.clone(), volume.mode, attributes_class));
        let capacity = volume.capacity.unwrap_or(Quantity::ZERO);
        let sizes = group.into_iter().flat_map(|sizes| sizes.range(..=(capacity.whole, capacity.nanos)));
        let met = sizes.flat_map(|(_, queries)| queries).filter(|(wanted, _)| wanted.is_met_by(volume));
        Merged::new(met.map(|(_, places)| places.range((Bound::Excluded(behind), Bound::Unbounded))))
    }
}

/// Sorted sets, merged.
struct Merged<'a> {
    rests: Vec<btree_set::Range<'a, Place>>,
    heads: BinaryHeap<Reverse<(Place, usize)>>,
}

impl<'a> Merged<'a> {
    fn new(sets: impl Iterator<Item = btree_set::Range<'a, Place>>) -> Self {
        let (mut rests, mut heads) = (Vec::new(), Vec::new());
        for mut rest in sets {
            heads.extend(rest.next().map(|place| Reverse((*place, rests.len()))));
            rests.push(rest);
        }
        Self { rests, heads: heads.into() }
    }
}

impl Iterator for Merged<'_> {
    type Item = Place;

    /// A place that is in several sets comes several times.
    fn next(&mut self) -> Option<Place> {
        let Reverse((place, set)) = self.heads.pop()?;
        self.heads.extend(self.rests[set].next().map(|next| Reverse((*next, set))));
        Some(place)
    }
}

fn group(wanted: &Wanted) -> Group {
    (wanted.query.class.clone(), wanted.query.mode, wanted.query.attributes_class.clone())
}

fn size(wanted: &Wanted) -> (u64, u32) {
    (wanted.query.at_least.whole, wanted.query.at_least.nanos)
}
