//! Builders of objects, deliveries, and a naive model of the store's answers.

#![allow(dead_code, reason = "every test file uses its part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{
    AccessMode, AccessModes, Claim, ClaimKey, ClaimRef, NEAREST_MAX, Quantity, Query, Reason, Requirement,
    Tally, Text, Uid, Version, Volume, VolumeFact, VolumeMode, VolumePhase,
};
pub(crate) use bindery_kit::gib;
use bindery_store::{Change, Delivery, Kind, Object, ObjectKey, Observed, Store, Unreadable};
use proptest::prelude::*;
use proptest::sample::select;

/// Delivers an object that was added or changed.
pub(crate) fn apply(store: &Store, object: impl Into<Object>) -> Change {
    store.deliver(Delivery::applied(object))
}

/// Delivers that an object is gone.
pub(crate) fn gone(store: &Store, key: ObjectKey) -> Change {
    store.deliver(Delivery::Gone(key))
}

/// Delivers a complete list.
pub(crate) fn list<O: Into<Object>>(
    store: &Store,
    kind: Kind,
    objects: impl IntoIterator<Item = O>,
) -> Change {
    store.deliver(Delivery::listed(kind, objects, "1"))
}

/// Names a pod.
pub(crate) fn pod_key(name: &str) -> ObjectKey {
    ObjectKey::Pod { namespace: "ns".into(), name: name.into() }
}

/// A free volume of one gibibyte.
pub(crate) fn volume(name: &str, version: u64) -> Volume {
    let version = Version::from(&*version.to_string());
    Volume { version, source: "csi".into(), ..bindery_kit::volume(name) }
}

/// A pending claim.
pub(crate) fn claim(key: &ClaimKey, version: u64) -> Claim {
    Claim {
        uid: Uid::from(&*format!("uid-{key}")),
        version: Version::from(&*version.to_string()),
        ..bindery_kit::claim(key.clone())
    }
}

pub(crate) fn readable<T>(object: T) -> Observed<T> {
    Observed::Readable(Arc::new(object))
}

pub(crate) fn unreadable<T>(uid: &str, version: u64) -> Observed<T> {
    let version = Version::from(&*version.to_string());
    let unreadable = Unreadable { uid: uid.into(), version, why: "spec.capacity: no quantity".into() };
    Observed::Unreadable(Box::new(unreadable))
}

/// What free claims ask for.
pub(crate) fn query() -> Query {
    Query {
        class: "".into(),
        mode: VolumeMode::Filesystem,
        attributes_class: "".into(),
        access_set: [AccessMode::ReadWriteOnce].iter().collect(),
        at_least: gib(1),
        labels: Vec::new(),
    }
}

pub(crate) fn any_key() -> impl Strategy<Value = ClaimKey> {
    select(vec!["a", "b", "c"]).prop_map(|name| ClaimKey::new("ns", name))
}

pub(crate) fn any_uid() -> impl Strategy<Value = Uid> {
    select(vec!["uid-ns/a", "uid-ns/b", "other"]).prop_map(Uid::from)
}

fn any_capacity() -> impl Strategy<Value = Quantity> {
    prop_oneof![
        (1..4_u64).prop_map(gib),
        Just(Quantity::ZERO),
        Just(Quantity { whole: 1 << 30, nanos: 5, ..Quantity::ZERO }),
    ]
}

fn any_labels() -> impl Strategy<Value = BTreeMap<Text, Text>> {
    let label = (select(vec!["tier", "zone"]), select(vec!["x", "y", "z"]));
    prop::collection::btree_map(label.0.prop_map(Text::from), label.1.prop_map(Text::from), 0..3)
}

fn any_modes() -> impl Strategy<Value = Vec<AccessMode>> {
    select(vec![
        vec![AccessMode::ReadWriteOnce],
        vec![AccessMode::ReadWriteOnce, AccessMode::ReadOnlyMany, AccessMode::ReadWriteOnce],
        vec![AccessMode::ReadWriteMany],
        vec![],
    ])
}

fn any_claim_ref() -> impl Strategy<Value = Option<ClaimRef>> {
    let claim_ref = (any_key(), prop::option::of(any_uid())).prop_map(|(key, uid)| ClaimRef {
        namespace: key.namespace,
        name: key.name,
        uid,
    });
    prop_oneof![3 => Just(None), 1 => claim_ref.prop_map(Some)]
}

/// A volume that may be anything; its name and version are given later.
pub(crate) fn any_volume() -> impl Strategy<Value = Volume> {
    let phase = prop_oneof![
        4 => Just(VolumePhase::Available),
        1 => select(vec![VolumePhase::Unset, VolumePhase::Bound, VolumePhase::Released]),
    ];
    let equal = (
        select(vec!["", "", "slow"]),
        prop_oneof![4 => Just(VolumeMode::Filesystem), 1 => Just(VolumeMode::Block)],
        prop_oneof![4 => Just(None), 1 => Just(Some("")), 1 => Just(Some("gold"))],
    );
    let differing =
        (prop::option::of(any_capacity()), any_labels(), any_labels(), any_modes(), any_claim_ref());
    (equal, differing, phase, prop::bool::weighted(0.1)).prop_map(
        |((class, mode, attributes_class), differing, phase, deleting)| {
            let (capacity, labels, topology, access_modes, claim_ref) = differing;
            let fact = |(key, value)| (VolumeFact::Topology(key), value);
            Volume {
                class: class.into(),
                mode,
                attributes_class: attributes_class.map(Text::from),
                capacity,
                labels,
                facts: topology.into_iter().map(fact).collect(),
                access_modes,
                claim_ref,
                phase,
                deleting,
                ..volume("", 1)
            }
        },
    )
}

fn any_requirement() -> impl Strategy<Value = Requirement> {
    use bindery_core::SelectorOperator::{DoesNotExist, Exists, In, NotIn};
    let key = select(vec!["tier", "zone", "unknown"]).prop_map(Text::from);
    let values = prop::collection::vec(select(vec!["x", "y", "nowhere"]).prop_map(Text::from), 1..3);
    (key, select(vec![In, NotIn, Exists, DoesNotExist]), values).prop_map(|(key, operator, values)| {
        let values = if matches!(operator, In | NotIn) { values } else { Vec::new() };
        Requirement { key, operator, values }
    })
}

pub(crate) fn any_query() -> impl Strategy<Value = Query> {
    let equal = (
        select(vec!["", "", "slow", "unknown"]),
        prop_oneof![4 => Just(VolumeMode::Filesystem), 1 => Just(VolumeMode::Block)],
        prop_oneof![4 => Just(""), 1 => Just("gold")],
    );
    (equal, any_modes(), any_capacity(), prop::collection::vec(any_requirement(), 0..3)).prop_map(
        |((class, mode, attributes_class), modes, at_least, labels)| Query {
            class: class.into(),
            mode,
            attributes_class: attributes_class.into(),
            access_set: modes.iter().collect(),
            at_least,
            labels,
        },
    )
}

/// What happens to a volume, which a number names.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Apply(usize, Volume),
    Break(usize),
    Assume(usize, Volume),
    Remove(usize),
    Reserve(usize, ClaimKey),
    Unreserve(usize, ClaimKey),
}

/// A step about one of so many volumes, with the weight of each kind of step.
pub(crate) fn any_step<V: Strategy<Value = Volume>>(
    names: usize,
    volumes: impl Fn() -> V,
    weights: [u32; 6],
) -> impl Strategy<Value = Step> {
    let name = || 0..names;
    prop_oneof![
        weights[0] => (name(), volumes()).prop_map(|(name, volume)| Step::Apply(name, volume)),
        weights[1] => name().prop_map(Step::Break),
        weights[2] => (name(), volumes()).prop_map(|(name, volume)| Step::Assume(name, volume)),
        weights[3] => name().prop_map(Step::Remove),
        weights[4] => (name(), any_key()).prop_map(|(name, key)| Step::Reserve(name, key)),
        weights[5] => (name(), any_key()).prop_map(|(name, key)| Step::Unreserve(name, key)),
    ]
}

/// The expected content of the overlay, which answers by scanning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// The volumes; `None` if one is unreadable.
    pub(crate) volumes: BTreeMap<Text, Option<Arc<Volume>>>,
    /// The claim that holds each picked volume.
    pub(crate) picked: BTreeMap<Text, ClaimKey>,
}

fn capacity(volume: &Volume) -> Quantity {
    volume.capacity.unwrap_or(Quantity::ZERO)
}

fn labels_meet(query: &Query, volume: &Volume) -> bool {
    query.labels.iter().all(|r| r.matches(volume.labels.get(&r.key).map(|value| &**value)))
}

impl Model {
    pub(crate) fn readable(&self) -> Vec<&Volume> {
        let mut volumes: Vec<&Volume> = self.volumes.values().flatten().map(|volume| &**volume).collect();
        volumes.sort_by(|a, b| (capacity(a), &a.name).cmp(&(capacity(b), &b.name)));
        volumes
    }

    pub(crate) fn access_sets(&self, containing: AccessModes) -> Vec<AccessModes> {
        let mut sets: Vec<AccessModes> = self.readable().iter().map(|volume| volume.access_set()).collect();
        sets.retain(|set| set.contains(containing));
        sets.sort_by_key(|set| (set.len(), set.bits()));
        sets.dedup();
        sets
    }

    pub(crate) fn reserved_for(&self, key: &ClaimKey, uid: &Uid) -> Vec<Text> {
        let asker = Claim { uid: uid.clone(), ..claim(key, 1) };
        let reserved = self.readable().into_iter().filter(|volume| volume.is_bound_to(&asker));
        reserved.map(|volume| volume.name.clone()).collect()
    }

    /// Names of the candidates, each with whether it is free for the claim.
    pub(crate) fn candidates(&self, query: &Query, asker: Option<&ClaimKey>) -> Vec<(Text, bool)> {
        let is_candidate = |volume: &&Volume| {
            volume.claim_ref.is_none()
                && volume.phase == VolumePhase::Available
                && !volume.deleting
                && volume.class == query.class
                && volume.mode == query.mode
                && volume.attributes_class_or_empty() == &*query.attributes_class
                && volume.access_set() == query.access_set
                && capacity(volume) >= query.at_least
                && labels_meet(query, volume)
        };
        let candidates = self.readable().into_iter().filter(is_candidate);
        let is_free = |name: &Text| self.picked.get(name).is_none_or(|claim| Some(claim) == asker);
        candidates.map(|volume| (volume.name.clone(), is_free(&volume.name))).collect()
    }

    fn reason(&self, query: &Query, asker: Option<&(ClaimKey, Uid)>, volume: &Volume) -> Option<Reason> {
        let own = is_own(asker, volume);
        let picked = self.picked.get(&volume.name);
        let reasons = [
            (volume.claim_ref.is_some() && !own, Reason::ReservedForOther),
            (volume.deleting, Reason::Deleting),
            (volume.class != query.class && !own, Reason::ClassDiffers),
            (volume.mode != query.mode, Reason::VolumeModeDiffers),
            (volume.attributes_class_or_empty() != &*query.attributes_class, Reason::AttributesClassDiffers),
            (!volume.access_set().contains(query.access_set), Reason::AccessModesMissing),
            (volume.phase != VolumePhase::Available && !own, Reason::NotAvailable),
            (capacity(volume) < query.at_least, Reason::TooSmall),
            (!labels_meet(query, volume) && !own, Reason::SelectorDiffers),
            (!own && picked.is_some_and(|claim| Some(claim) != asker.map(|a| &a.0)), Reason::InFlight),
        ];
        reasons.into_iter().find_map(|(applies, reason)| applies.then_some(reason))
    }

    pub(crate) fn tallies(&self, query: &Query, asker: Option<&(ClaimKey, Uid)>) -> Vec<Tally> {
        let mut by_reason: BTreeMap<Reason, Vec<&Volume>> = BTreeMap::new();
        for volume in self.readable() {
            if let Some(reason) = self.reason(query, asker, volume) {
                by_reason.entry(reason).or_default().push(volume);
            }
        }
        let mut tallies: Vec<Tally> = Vec::new();
        let unreadable: Vec<Text> =
            self.volumes.iter().filter(|(_, v)| v.is_none()).map(|(name, _)| name.clone()).collect();
        if !unreadable.is_empty() {
            tallies.push(tally(Reason::Unreadable, unreadable));
        }
        for (reason, mut volumes) in by_reason {
            // They are ascending; a stable sort keeps that, but volumes that are too small are in descending
            // order.
            let level =
                |volume: &Volume| (differences(query, asker, volume), capacity(volume) < query.at_least);
            volumes.sort_by_key(|volume| level(volume));
            for group in volumes.chunk_by_mut(|a, b| level(a) == level(b)) {
                if capacity(group[0]) < query.at_least {
                    group.reverse();
                }
            }
            tallies.push(tally(reason, volumes.into_iter().map(|volume| volume.name.clone()).collect()));
        }
        share(&mut tallies);
        tallies
    }
}

fn tally(reason: Reason, names: Vec<Text>) -> Tally {
    Tally { reason, count: u32::try_from(names.len()).unwrap(), nearest: names }
}

/// Leaves as many names as all tallies may have: the first names of all tallies, then the second ones, and so
/// on.
fn share(tallies: &mut [Tally]) {
    let places =
        tallies.iter().enumerate().flat_map(|(at, tally)| (0..tally.nearest.len()).map(move |n| (n, at)));
    let mut kept: Vec<(usize, usize)> = places.collect();
    kept.sort_unstable();
    kept.truncate(NEAREST_MAX);
    for (at, tally) in tallies.iter_mut().enumerate() {
        tally.nearest.truncate(kept.iter().filter(|(_, of)| *of == at).count());
    }
}

/// Whether the volume is reserved for the asking claim.
fn is_own(asker: Option<&(ClaimKey, Uid)>, volume: &Volume) -> bool {
    asker.is_some_and(|(key, uid)| volume.is_bound_to(&Claim { uid: uid.clone(), ..claim(key, 1) }))
}

fn differences(query: &Query, asker: Option<&(ClaimKey, Uid)>, volume: &Volume) -> usize {
    usize::from(volume.class != query.class && !is_own(asker, volume))
        + usize::from(volume.mode != query.mode)
        + usize::from(volume.attributes_class_or_empty() != &*query.attributes_class)
        + usize::from(!volume.access_set().contains(query.access_set))
}
