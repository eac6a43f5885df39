//! A free volume wakes one waiting key, and then the next one while it stays free. No key is left out.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bindery_core::{AccessModes, ClaimKey, ClaimRef, Query, Text, Version, Volume};
use bindery_store::{
    Change, Dispatcher, Fact, ObjectKey, Offer, Revision, Store, Subscriptions, Wanted, WantedSets,
};
use proptest::prelude::*;

use crate::support::{any_query, any_volume, apply, gib, gone, query, volume};
use crate::{Step, carry_out};

/// A store, and a queue of the keys that wait for its volumes.
#[derive(Default)]
struct Desk {
    store: Store,
    turns: RefCell<Turns>,
    /// Gets no turn at the moment.
    except: Option<usize>,
}

/// The order of decisions, as in the controller's queue.
#[derive(Default)]
struct Turns {
    queue: VecDeque<usize>,
    in_flight: BTreeSet<usize>,
    again: BTreeSet<usize>,
    offered: BTreeSet<usize>,
    backing_off: BTreeSet<usize>,
}

impl Turns {
    fn add(&mut self, key: usize) {
        if self.in_flight.contains(&key) {
            self.again.insert(key);
        } else if !self.queue.contains(&key) {
            self.queue.push_back(key);
        }
    }

    fn end(&mut self, key: usize, succeeds: bool) {
        self.in_flight.remove(&key);
        if succeeds {
            self.backing_off.remove(&key);
        } else {
            self.backing_off.insert(key);
        }
        let (again, offered) = (self.again.remove(&key), self.offered.remove(&key));
        if again || (offered && !self.backing_off.contains(&key)) {
            self.add(key);
        }
    }
}

impl Dispatcher<usize> for Desk {
    fn free(&self, volume: &str) -> Option<Arc<Volume>> {
        self.store.free_volume(volume)
    }

    fn ask(&self, key: &usize, offer: Offer) -> bool {
        let mut turns = self.turns.borrow_mut();
        if self.except == Some(*key) {
            return false;
        }
        if turns.in_flight.contains(key) {
            turns.offered.insert(*key);
            return false;
        }
        if offer == Offer::Returned && turns.backing_off.contains(key) {
            return false;
        }
        turns.add(*key);
        true
    }
}

fn any_set(query: Query) -> Wanted {
    Wanted { query: Arc::new(query), sets: WantedSets::Containing, narrowed: None }
}

#[test]
fn a_key_that_is_decided_again_by_a_timer_keeps_its_place() {
    let (desk, subscriptions) = (Desk::default(), Subscriptions::new());
    let wait = |key| {
        let wanted = Wanted { query: Arc::new(query()), sets: WantedSets::Exact, narrowed: None };
        assert!(!subscriptions.subscribe(key, desk.store.revision(), vec![Fact::Candidates(wanted)]));
        subscriptions.pass_on(&key, &desk);
    };
    let [first, second] = [1, 2];
    wait(first);
    wait(second);
    // The refresh timer of the first key repeats its event; no fact has changed.
    wait(first);
    subscriptions.wake(&apply(&desk.store, volume("v", 1)), Offer::New, &desk, |_| true);
    assert_eq!(desk.turns.borrow().queue, [first]);
}

#[test]
fn a_volume_wakes_the_fitting_key_that_waits_longest_then_the_next() {
    let (desk, subscriptions) = (Desk::default(), Subscriptions::new());
    let tier = bindery_core::Requirement {
        key: "tier".into(),
        operator: bindery_core::SelectorOperator::In,
        values: vec!["gold".into()],
    };
    let exact = |query: Query| Wanted { query: Arc::new(query), sets: WantedSets::Exact, narrowed: None };
    let [larger, class, modes, fits, labels, any, last] = [0, 1, 2, 3, 4, 5, 6];
    let wait = |key, wanted: Wanted| {
        assert!(!subscriptions.subscribe(key, desk.store.revision(), vec![Fact::Candidates(wanted)]));
    };
    for (key, wanted) in [
        (larger, exact(Query { at_least: gib(3), ..query() })),
        (class, exact(Query { class: "fast".into(), ..query() })),
        (modes, exact(Query { access_set: AccessModes::from_bits(3).unwrap(), ..query() })),
        (fits, exact(query())),
        (labels, exact(Query { labels: vec![tier], ..query() })),
        (any, any_set(Query { access_set: AccessModes::default(), ..query() })),
        (last, exact(query())),
    ] {
        wait(key, wanted);
    }
    let wake =
        |change: &Change, offer| assert!(subscriptions.wake(change, offer, &desk, |_| true).is_empty());
    let turn = || {
        let key = desk.turns.borrow_mut().queue.pop_front();
        key.iter().for_each(|key| subscriptions.pass_on(key, &desk));
        key
    };
    wake(&apply(&desk.store, volume("v", 1)), Offer::New);
    assert_eq!([turn(), turn(), turn(), turn()], [Some(fits), Some(any), Some(last), None]);

    // The volume has changed, so it is offered to all keys that it fits now. A key that is decided again
    // keeps its place.
    wait(fits, exact(query()));
    let mut labelled = volume("v", 2);
    labelled.labels.insert("tier".into(), "gold".into());
    wake(&apply(&desk.store, labelled), Offer::New);
    assert_eq!([turn(), turn()], [Some(fits), Some(labels)]);
    // When the volume is picked, it was already offered to the next key. Another volume begins at the front.
    desk.store.reserve("v", &ClaimKey::new("ns", "a"), &[]).unwrap();
    wake(&apply(&desk.store, volume("w", 3)), Offer::New);
    assert_eq!([turn(), turn()], [Some(any), Some(fits)]);
    // While one volume is offered to a key, the next volume is offered to another key.
    wake(&desk.store.unreserve("v", &ClaimKey::new("ns", "a")), Offer::Returned);
    assert_eq!([turn(), turn()], [Some(any), Some(fits)]);
    while turn().is_some() {}
    // But not if the volume is taken by then.
    wake(&apply(&desk.store, volume("x", 4)), Offer::New);
    gone(&desk.store, ObjectKey::Volume("x".into()));
    wake(&apply(&desk.store, volume("y", 5)), Offer::New);
    assert_eq!([turn(), turn(), turn(), turn()], [Some(fits), Some(any), Some(last), None]);

    // A taken volume wakes no key, and a key that has left no longer waits.
    wake(&gone(&desk.store, ObjectKey::Volume("v".into())), Offer::New);
    [fits, last].iter().for_each(|key| subscriptions.unsubscribe(key));
    wake(&apply(&desk.store, volume("w", 6)), Offer::New);
    assert_eq!(turn(), None);
    let larger = Volume { capacity: Some(gib(2)), ..volume("w", 7) };
    wake(&apply(&desk.store, larger), Offer::New);
    assert_eq!([turn(), turn()], [Some(any), None]);
}

/// The next event. Numbers are taken modulo the number of objects.
#[derive(Clone, Debug)]
enum Deed {
    /// A watch delivers volumes, or an own write changes one.
    Volume(Box<Step>),
    /// The next key of the queue is decided.
    Decide,
    /// A decided key depends on its questions, and acts on the answers; `false` if the engine fails.
    Settle(usize, bool),
    /// The writes of a bind end.
    Bind(usize, bool),
    /// A key that backs off gets its turn.
    Retry(usize),
}

fn any_deed() -> impl Strategy<Value = Deed> {
    let volume = || (0..4_usize, any_volume());
    prop_oneof![
        3 => volume().prop_map(|(name, volume)| Deed::Volume(Box::new(Step::Apply(name, volume)))),
        1 => volume().prop_map(|(name, volume)| Deed::Volume(Box::new(Step::Assume(name, volume)))),
        1 => (0..4_usize).prop_map(|name| Deed::Volume(Box::new(Step::Remove(name)))),
        1 => prop::collection::vec(volume(), 0..4)
            .prop_map(|list| Deed::Volume(Box::new(Step::Relist(list)))),
        6 => Just(Deed::Decide),
        6 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(nth, works)| Deed::Settle(nth, works)),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(nth, works)| Deed::Bind(nth, works)),
        1 => any::<usize>().prop_map(Deed::Retry),
    ]
}

/// A key that waits, and whether it declines every volume, as by a policy.
#[derive(Clone, Debug)]
struct Waits {
    wanted: Wanted,
    declines: bool,
}

fn any_waits() -> impl Strategy<Value = Waits> {
    let wanted = prop_oneof![2 => Just(query()), 1 => any_query()].prop_map(any_set);
    (wanted, any::<bool>()).prop_map(|(wanted, declines)| Waits { wanted, declines })
}

/// A decision that was made, on the store of that revision.
struct Decision {
    key: usize,
    since: Revision,
    free: BTreeMap<Text, Arc<Volume>>,
    in_flight: Option<Text>,
}

struct World {
    desk: Desk,
    subscriptions: Subscriptions<usize>,
    keys: Vec<Waits>,
    bound: BTreeSet<usize>,
    /// The free volumes that each key found when it was decided last.
    seen: BTreeMap<usize, BTreeMap<Text, Arc<Volume>>>,
    decisions: Vec<Decision>,
    binds: Vec<(usize, Text)>,
    version: u64,
}

fn claim_of(key: usize) -> ClaimKey {
    ClaimKey::new("ns", format!("claim-{key}"))
}

impl World {
    fn new(keys: Vec<Waits>) -> Self {
        let desk = Desk::default();
        (0..keys.len()).for_each(|key| desk.turns.borrow_mut().add(key));
        let (subscriptions, version) = (Subscriptions::new(), 0);
        let (bound, seen) = (BTreeSet::new(), BTreeMap::new());
        Self { desk, subscriptions, keys, bound, seen, decisions: Vec::new(), binds: Vec::new(), version }
    }

    fn wake(&mut self, change: &Change, offer: Offer, except: Option<usize>) {
        self.desk.except = except;
        let woken = self.subscriptions.wake(change, offer, &self.desk, |_| true);
        self.desk.except = None;
        woken.into_iter().for_each(|key| self.desk.turns.borrow_mut().add(key));
    }

    fn fitting(&self, key: usize, is_free: bool) -> BTreeMap<Text, Arc<Volume>> {
        let store = &self.desk.store;
        let wanted = &self.keys[key].wanted;
        let is_one = |volume: &Arc<Volume>| {
            let is_held = store.picked_for(&volume.name).is_some();
            let is_available = volume.claim_ref.is_none()
                && !volume.deleting
                && volume.phase == bindery_core::VolumePhase::Available;
            is_available && is_held != is_free && wanted.is_met_by(volume)
        };
        let volumes = store.volumes().into_iter().filter(is_one);
        volumes.map(|volume| (volume.name.clone(), volume)).collect()
    }

    fn act(&mut self, deed: Deed) {
        match deed {
            Deed::Volume(step) => {
                self.version += 1;
                let change = carry_out(&self.desk.store, self.version, *step);
                self.wake(&change, Offer::New, None);
            }
            Deed::Decide => self.decide(),
            Deed::Settle(nth, works) if !self.decisions.is_empty() => {
                let decision = self.decisions.remove(nth % self.decisions.len());
                self.settle(decision, works);
            }
            Deed::Bind(nth, works) if !self.binds.is_empty() => {
                let (key, volume) = self.binds.remove(nth % self.binds.len());
                self.bind(key, &volume, works);
            }
            Deed::Retry(nth) => {
                let mut turns = self.desk.turns.borrow_mut();
                let key = turns.backing_off.iter().copied().nth(nth % turns.backing_off.len().max(1));
                key.iter().for_each(|key| {
                    turns.backing_off.remove(key);
                    turns.add(*key);
                });
            }
            Deed::Settle(..) | Deed::Bind(..) => {}
        }
    }

    fn decide(&mut self) {
        let Some(key) = self.desk.turns.borrow_mut().queue.pop_front() else { return };
        if self.bound.contains(&key) {
            return;
        }
        self.desk.turns.borrow_mut().in_flight.insert(key);
        let in_flight = self.fitting(key, false).into_keys().next_back();
        let (since, free) = (self.desk.store.revision(), self.fitting(key, true));
        self.decisions.push(Decision { key, since, free, in_flight });
    }

    fn settle(&mut self, Decision { key, since, free, in_flight }: Decision, works: bool) {
        let mut facts = vec![Fact::Candidates(self.keys[key].wanted.clone())];
        let takes = !self.keys[key].declines && !free.is_empty();
        facts.extend(in_flight.filter(|_| !takes).map(Fact::Reservation));
        if works {
            self.seen.insert(key, free.clone());
            if self.subscriptions.subscribe(key, since, facts) {
                self.desk.turns.borrow_mut().add(key);
            }
        }
        let picked = free.into_values().find(|volume| {
            let is_as_it_was = self.desk.store.free_volume(&volume.name).as_ref() == Some(volume);
            works
                && takes
                && is_as_it_was
                && self.desk.store.reserve(&volume.name, &claim_of(key), &[]).is_ok()
        });
        self.subscriptions.pass_on(&key, &self.desk);
        match picked {
            Some(volume) => self.binds.push((key, volume.name.clone())),
            None => {
                let mut turns = self.desk.turns.borrow_mut();
                if works && takes {
                    // The volume that it would take has changed meanwhile.
                    turns.again.insert(key);
                }
                turns.end(key, works);
            }
        }
    }

    fn bind(&mut self, key: usize, name: &Text, works: bool) {
        let claim = claim_of(key);
        if let (true, Some(volume)) =
            (works, self.desk.store.volumes().into_iter().find(|volume| volume.name == *name))
        {
            self.version += 1;
            let claim_ref =
                ClaimRef { namespace: claim.namespace.clone(), name: claim.name.clone(), uid: None };
            let version = Version::from(&*self.version.to_string());
            let taken = Volume { claim_ref: Some(claim_ref), version, ..volume.as_ref().clone() };
            let change = apply(&self.desk.store, taken);
            self.wake(&change, Offer::New, None);
            self.bound.insert(key);
            self.subscriptions.unsubscribe(&key);
        }
        let change = self.desk.store.unreserve(name, &claim);
        self.wake(&change, Offer::Returned, Some(key));
        self.desk.turns.borrow_mut().end(key, self.bound.contains(&key));
    }

    /// Ends everything in flight, and lets every key that backs off try again.
    fn rest(&mut self) {
        for _ in 0..1_000 {
            let is_at_rest = {
                let turns = self.desk.turns.borrow();
                turns.queue.is_empty() && turns.in_flight.is_empty() && turns.backing_off.is_empty()
            };
            if is_at_rest {
                return;
            }
            for deed in [Deed::Retry(0), Deed::Decide, Deed::Settle(0, true), Deed::Bind(0, true)] {
                self.act(deed);
            }
        }
        panic!("the keys are decided without end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn at_rest_every_waiting_key_was_offered_every_free_volume_that_fits(
        keys in prop::collection::vec(any_waits(), 1..6),
        deeds in prop::collection::vec(any_deed(), 0..60),
    ) {
        let mut world = World::new(keys);
        deeds.into_iter().for_each(|deed| world.act(deed));
        world.rest();
        for key in (0..world.keys.len()).filter(|key| !world.bound.contains(key)) {
            let fitting = world.fitting(key, true);
            prop_assert!(world.keys[key].declines || fitting.is_empty(), "{key} could have {fitting:?}");
            for volume in fitting.values() {
                // Another version of the volume may offer the same.
                let seen = world.seen[&key].get(&volume.name).cloned();
                let version = volume.version.clone();
                let seen = seen.map(|seen| Volume { version, ..seen.as_ref().clone() });
                prop_assert_eq!(seen.as_ref(), Some(volume.as_ref()), "{} was not asked about it", key);
            }
        }
    }
}
