//! The volumes of siblings, which are counted as they change, against a count of all objects.

mod support;

use std::collections::BTreeMap;

use bindery_core::{
    Claim, ClaimFact, ClaimKey, ClaimRef, Counts, Siblings, Spread, Text, Uid, Volume, VolumeFact,
};
use bindery_store::{Change, Fact, NotReserved, ObjectKey, Store};
use proptest::prelude::*;
use support::{apply, claim, gone, volume};

const ZONE: &str = "zone";
const APP: &str = "app";

fn spread() -> Spread {
    Spread { by: VolumeFact::Label(ZONE.into()), among: vec![ClaimFact::Label(APP.into())] }
}

fn store() -> Store {
    let store = Store::new();
    store.keep_spreads(&[spread()].into());
    store
}

fn text(kind: &str, number: u8) -> Text {
    format!("{kind}{number}").into()
}

fn key(number: u8) -> ClaimKey {
    ClaimKey { namespace: "ns".into(), name: text("c", number) }
}

/// A claim of an app, in its first or a later life.
fn claim_of(number: u8, app: Option<u8>, life: u8, version: u64) -> Claim {
    let facts = app.map(|app| (ClaimFact::Label(APP.into()), text("app", app))).into_iter().collect();
    Claim { facts, uid: Uid(text("life", life)), ..claim(&key(number), version) }
}

/// A volume of a zone, and the claim that its claimRef names, by its life too.
fn volume_of(number: u8, zone: Option<u8>, owner: Option<(u8, Option<u8>)>, version: u64) -> Volume {
    let claim_ref = owner.map(|(claim, life)| ClaimRef {
        namespace: "ns".into(),
        name: key(claim).name,
        uid: life.map(|life| Uid(text("life", life))),
    });
    let labels = zone.map(|zone| (ZONE.into(), text("z", zone))).into_iter().collect();
    Volume { claim_ref, labels, ..volume(&text("v", number), version) }
}

#[derive(Clone, Debug)]
enum Step {
    Claim { claim: u8, app: Option<u8>, life: u8 },
    ClaimGone(u8),
    Volume { volume: u8, zone: Option<u8>, owner: Option<(u8, Option<u8>)> },
    VolumeGone(u8),
    Reserve { volume: u8, claim: u8 },
    Unreserve { volume: u8, claim: u8 },
}

fn any_step() -> impl Strategy<Value = Step> {
    let few = || 0..3_u8;
    let some = || prop::option::of(0..2_u8);
    let owner = prop::option::of((few(), some()));
    prop_oneof![
        3 => (few(), some(), 0..2_u8).prop_map(|(claim, app, life)| Step::Claim { claim, app, life }),
        1 => few().prop_map(Step::ClaimGone),
        4 => (few(), some(), owner).prop_map(|(volume, zone, owner)| Step::Volume { volume, zone, owner }),
        1 => few().prop_map(Step::VolumeGone),
        2 => (few(), few()).prop_map(|(volume, claim)| Step::Reserve { volume, claim }),
        2 => (few(), few()).prop_map(|(volume, claim)| Step::Unreserve { volume, claim }),
    ]
}

/// The claim that a claimRef names, and its life, where the claimRef has a UID.
type Owner = (u8, Option<u8>);

/// App and life of claims, zone and owner of volumes, and the claims that volumes are picked for.
#[derive(Default)]
struct World {
    claims: BTreeMap<u8, (Option<u8>, u8)>,
    volumes: BTreeMap<u8, (Option<u8>, Option<Owner>)>,
    picks: BTreeMap<u8, u8>,
}

impl World {
    fn take(&mut self, store: &Store, step: &Step, version: u64) -> Change {
        match *step {
            Step::Claim { claim, app, life } => {
                self.claims.insert(claim, (app, life));
                apply(store, claim_of(claim, app, life, version))
            }
            Step::ClaimGone(claim) => {
                self.claims.remove(&claim);
                gone(store, ObjectKey::Claim(key(claim)))
            }
            Step::Volume { volume, zone, owner } => {
                self.volumes.insert(volume, (zone, owner));
                apply(store, volume_of(volume, zone, owner, version))
            }
            Step::VolumeGone(volume) => {
                self.volumes.remove(&volume);
                gone(store, ObjectKey::Volume(text("v", volume)))
            }
            Step::Reserve { volume, claim } => {
                self.picks.entry(volume).or_insert(claim);
                store.reserve(&text("v", volume), &key(claim), &[]).unwrap_or_default()
            }
            Step::Unreserve { volume, claim } => {
                self.picks.retain(|picked, by| (*picked, *by) != (volume, claim));
                store.unreserve(&text("v", volume), &key(claim))
            }
        }
    }

    /// The volumes of claims of an app, without those of one claim.
    fn counts(&self, app: Option<u8>, without: Option<u8>) -> Counts {
        let mut counts = Counts::new();
        for (volume, (zone, owner)) in &self.volumes {
            let owns = |claim: u8, life: u8| {
                owner.is_some_and(|(named, of)| named == claim && of.is_none_or(|of| of == life))
                    || self.picks.get(volume) == Some(&claim)
            };
            let owners = self
                .claims
                .iter()
                .filter(|(claim, (of, life))| *of == app && Some(**claim) != without && owns(**claim, *life));
            for _ in owners {
                *counts.entry(zone.map(|zone| text("z", zone))).or_default() += 1;
            }
        }
        counts
    }
}

proptest! {
    #[test]
    fn counts_are_those_of_all_objects_and_their_changes_are_told(
        steps in prop::collection::vec(any_step(), 1..40),
    ) {
        let (store, mut world) = (store(), World::default());
        let apps = [None, Some(0), Some(1)];
        for (version, step) in (1..).zip(&steps) {
            let before = apps.map(|app| world.counts(app, None));
            let change = world.take(&store, step, version);
            for (app, before) in apps.into_iter().zip(before) {
                let asker = claim_of(9, app, 0, version);
                let now = world.counts(app, None);
                prop_assert_eq!(&store.siblings(&asker, &spread()).counts, &now, "{:?}", step);
                let differs = |value: &&Option<Text>| before.get(*value) != now.get(*value);
                for value in before.keys().chain(now.keys()).filter(differs) {
                    let siblings = Siblings::of_claim(&spread(), &asker);
                    let fact = Fact::Siblings(siblings.into(), value.clone());
                    prop_assert!(change.all_facts().any(|changed| changed == fact), "{:?} {:?}", step, fact);
                }
            }
            for (claim, (app, life)) in &world.claims {
                let asker = claim_of(*claim, *app, *life, version);
                let others = world.counts(*app, Some(*claim));
                prop_assert_eq!(store.siblings(&asker, &spread()).counts, others, "{:?}", step);
            }
        }
    }
}

#[test]
fn a_volume_that_is_picked_for_its_owner_counts_once() {
    let store = store();
    apply(&store, claim_of(1, None, 0, 1));
    apply(&store, volume_of(1, Some(0), None, 1));
    let asker = claim_of(2, None, 0, 1);
    let counts = || store.siblings(&asker, &spread()).counts.into_values().collect::<Vec<_>>();
    store.reserve("v1", &key(1), &[]).unwrap();
    assert_eq!(counts(), [1]);
    // The write of its claimRef has returned, and the decision is still in flight.
    store.assume_volume(volume_of(1, Some(0), Some((1, Some(0))), 2).into());
    assert_eq!(counts(), [1]);
    assert_eq!(store.unreserve("v1", &key(1)).facts, [Fact::Reservation("v1".into())]);
    assert_eq!(counts(), [1]);
}

#[test]
fn a_volume_is_reserved_only_while_siblings_have_what_was_counted() {
    let store = store();
    for number in 1..=2 {
        apply(&store, claim_of(number, None, 0, 1));
        apply(&store, volume_of(number, Some(number), None, 1));
    }
    let counted = [store.siblings(&claim_of(2, None, 0, 1), &spread())];
    store.reserve("v1", &key(1), &[]).unwrap();
    assert_eq!(store.reserve("v2", &key(2), &counted), Err(NotReserved::Siblings));
    let counted = [store.siblings(&claim_of(2, None, 0, 1), &spread())];
    store.reserve("v2", &key(2), &counted).unwrap();
    // Its own pick is none of its siblings'.
    store.reserve("v2", &key(2), &counted).unwrap();
}
