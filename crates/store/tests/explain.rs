//! Compares the full explanation with the tallies of decisions and with the default engine: over random
//! worlds the first two count the same reasons, and the engine binds if and only if the explanation has no
//! reason.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{
    AccessMode, Action, Claim, ClaimKey, ClaimRef, Cluster, DecisionLimits, Engine as _, Quantity, Query,
    Reason, Request, Requirement, Selector, SelectorOperator, Subject, Text, Uid, Volume, VolumeMode,
    VolumePhase,
};
use bindery_engine::DefaultEngine;
use bindery_kit::NoEnvironment;
use bindery_store::{LiveReads, Object, Observed, Store};
use proptest::prelude::*;
use support::{any_key, any_query, any_uid, any_volume, apply, claim, gib, unreadable, volume};

fn asking(query: &Query, key: &ClaimKey, uid: &Uid) -> Claim {
    Claim {
        uid: uid.clone(),
        request: query.at_least,
        access_modes: query.access_set.iter().collect(),
        class: Some(query.class.clone()),
        mode: query.mode,
        attributes_class: Some(query.attributes_class.clone()),
        selector: Some(Selector::Requirements(query.labels.clone())),
        ..claim(key, 1)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_first_obstacle_is_the_reason_that_is_counted(
        volumes in prop::collection::vec(prop::option::weighted(0.95, any_volume()), 0..40),
        picked in prop::collection::vec((0..40_usize, any_key()), 0..8),
        queries in prop::collection::vec(any_query(), 4),
        (key, uid) in (any_key(), any_uid()),
    ) {
        let store = Store::new();
        let name = |number: usize| Text::from(format!("v{number:02}"));
        let count = volumes.len();
        for (number, volume) in volumes.into_iter().enumerate() {
            let observed = match volume {
                Some(volume) => Observed::Readable(Arc::new(Volume { name: name(number), ..volume })),
                None => unreadable("uid", 1),
            };
            apply(&store, Object::Volume(name(number), observed));
        }
        for (number, key) in picked {
            store.reserve(&name(number), &key, &[]).ok();
        }
        for query in queries {
            let mut counts = BTreeMap::<Reason, u32>::new();
            let claim = asking(&query, &key, &uid);
            let candidates = store.explain(&claim, usize::MAX).nearest;
            prop_assert_eq!(candidates.len(), count);
            let nearest = store.explain(&claim, 2);
            prop_assert_eq!(&nearest.nearest[..], &candidates[..count.min(2)]);
            prop_assert_eq!(nearest.more, count.saturating_sub(2));
            for candidate in &candidates {
                if let Some(first) = candidate.obstacles.first() {
                    *counts.entry(first.reason).or_default() += 1;
                }
                prop_assert!(candidate.obstacles.is_sorted_by_key(|obstacle| obstacle.reason));
            }
            let (live, limits) = (LiveReads::new(), DecisionLimits::default());
            let mut session =
                store.session(&NoEnvironment, &live, limits).for_claim(key.clone(), uid.clone());
            let tallies = (&mut session as &mut dyn Cluster).tallies(query).unwrap();
            let tallied: BTreeMap<Reason, u32> =
                tallies.into_iter().map(|tally| (tally.reason, tally.count)).collect();
            prop_assert_eq!(counts, tallied);
        }
    }
}

/// One volume and one claim, and the claim of a decision in flight that has picked the volume.
#[derive(Clone, Debug)]
struct Pair {
    volume: Volume,
    claim: Claim,
    picked_for: Option<ClaimKey>,
}

impl Pair {
    fn store(&self) -> Store {
        let store = Store::new();
        apply(&store, self.volume.clone());
        if let Some(holder) = &self.picked_for {
            store.reserve(&self.volume.name, holder, &[]).unwrap();
        }
        store
    }

    fn obstacles(&self) -> Vec<Reason> {
        let obstacles = self.store().obstacles(&self.claim, &self.volume.name).unwrap();
        obstacles.into_iter().map(|obstacle| obstacle.reason).collect()
    }

    /// Whether the engine binds them, and the volume can be reserved for this.
    fn is_bound(&self) -> bool {
        let (store, live) = (self.store(), LiveReads::new());
        let Claim { key, uid, .. } = &self.claim;
        let mut session = store
            .session(&NoEnvironment, &live, DecisionLimits::default())
            .for_claim(key.clone(), uid.clone());
        let request = Request { now: 0, subject: Subject::SyncClaim(Arc::new(self.claim.clone())) };
        let decision = DefaultEngine.decide(&request, &mut session).unwrap();
        drop(session);
        let does = |is: fn(&Action) -> bool| decision.actions().any(is);
        does(|action| matches!(action, Action::BindClaim { .. }))
            && (!does(|action| matches!(action, Action::ReserveVolume { .. }))
                || store.reserve(&self.volume.name, key, &[]).is_ok())
    }

    /// Removes one obstacle.
    fn mend(&mut self, reason: Reason) {
        let Self { volume, claim, picked_for } = self;
        match reason {
            // A client that removes the claimRef makes the volume Available again.
            Reason::ReservedForOther => (volume.claim_ref, volume.phase) = (None, VolumePhase::Available),
            Reason::Deleting => volume.deleting = false,
            Reason::ClassDiffers => volume.class = claim.class.clone().unwrap(),
            Reason::VolumeModeDiffers => volume.mode = claim.mode,
            Reason::AttributesClassDiffers => volume.attributes_class = claim.attributes_class.clone(),
            Reason::AccessModesMissing => volume.access_modes = claim.access_modes.clone(),
            Reason::NotAvailable => volume.phase = VolumePhase::Available,
            Reason::TooSmall => volume.capacity = Some(claim.request),
            Reason::SelectorDiffers => claim.selector = None,
            Reason::InFlight => *picked_for = None,
            Reason::Unreadable | Reason::Rejected | Reason::WaitsForConsumer => {
                panic!("{reason:?} of a volume that is read")
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_048))]

    #[test]
    fn each_obstacle_keeps_the_engine_from_the_volume_and_nothing_else_does(
        volume in any_volume(),
        query in any_query(),
        (key, uid) in (any_key(), any_uid()),
        is_named in any::<bool>(),
        picked_for in prop::option::of(any_key()),
    ) {
        let capacity = volume.capacity.or(Some(Quantity::ZERO));
        let volume = Volume { name: "v".into(), capacity, ..volume };
        let claim = Claim { volume_name: is_named.then(|| "v".into()), ..asking(&query, &key, &uid) };
        // A volume with a claimRef is not picked.
        let picked_for = picked_for.filter(|_| volume.claim_ref.is_none());
        let pair = Pair { volume, claim, picked_for };
        let obstacles = pair.obstacles();
        prop_assert_eq!(pair.is_bound(), obstacles.is_empty(), "{:?}", obstacles);
        let without = |left: Option<Reason>| {
            let mut pair = pair.clone();
            obstacles.iter().filter(|reason| Some(**reason) != left).for_each(|reason| pair.mend(*reason));
            pair
        };
        prop_assert!(without(None).is_bound(), "more than {:?} is in the way", obstacles);
        for reason in &obstacles {
            prop_assert!(!without(Some(*reason)).is_bound(), "{:?} is not in the way", reason);
        }
    }
}

/// The names and sentences of an explanation, in order.
fn told(store: &Store, claim: &Claim) -> Vec<String> {
    let line = |candidate: &bindery_store::VolumeObstacles| {
        let obstacles: Vec<String> = candidate.obstacles.iter().map(ToString::to_string).collect();
        format!("{} {}", candidate.volume, obstacles.join("; "))
    };
    store.explain(claim, usize::MAX).nearest.iter().map(line).collect()
}

#[test]
fn every_obstacle_names_the_field_and_both_values() {
    let store = Store::new();
    let key = ClaimKey::new("ns", "a");
    let reference = |name: &str, uid| Some(ClaimRef { namespace: "ns".into(), name: name.into(), uid });
    let mut all = volume("far", 1);
    all.class = "slow".into();
    all.mode = VolumeMode::Block;
    all.attributes_class = Some("gold".into());
    all.access_modes = vec![AccessMode::ReadOnlyMany];
    all.phase = VolumePhase::Released;
    for volume in [
        all,
        volume("small", 1),
        Volume { capacity: Some(gib(2)), deleting: true, ..volume("leaving", 1) },
        Volume { capacity: Some(gib(2)), claim_ref: reference("b", None), ..volume("taken", 1) },
        Volume {
            capacity: Some(gib(2)),
            claim_ref: reference("a", Some("old".into())),
            ..volume("was-mine", 1)
        },
        Volume { capacity: Some(gib(3)), ..volume("plain", 1) },
        Volume {
            capacity: Some(gib(4)),
            labels: BTreeMap::from([("tier".into(), "gold".into())]),
            ..volume("fits", 1)
        },
    ] {
        apply(&store, volume);
    }
    apply(&store, Object::Volume("broken".into(), unreadable("uid", 1)));
    let requirement =
        Requirement { key: "tier".into(), operator: SelectorOperator::In, values: vec!["gold".into()] };
    let mut asking = Claim { request: gib(2), ..claim(&key, 1) };
    asking.selector = Some(Selector::Requirements(vec![requirement]));
    let selector = "metadata.labels: offers none, asked for tier=gold";
    assert_eq!(
        told(&store, &asking),
        [
            "fits ".to_owned(),
            format!("plain {selector}"),
            format!("leaving metadata.deletionTimestamp: the volume is being deleted; {selector}"),
            format!("taken spec.claimRef: belongs to ns/b; {selector}"),
            format!("was-mine spec.claimRef: belongs to an earlier ns/a with UID old; {selector}"),
            format!("small spec.capacity.storage: offers 1Gi, asked for 2Gi; {selector}"),
            format!(
                "far spec.storageClassName: offers \"slow\", asked for none; \
                 spec.volumeMode: offers Block, asked for Filesystem; \
                 spec.volumeAttributesClassName: offers \"gold\", asked for none; \
                 spec.accessModes: offers ReadOnlyMany, asked for ReadWriteOnce; \
                 status.phase: is Released, must be Available; \
                 spec.capacity.storage: offers 1Gi, asked for 2Gi; {selector}"
            ),
            "broken the volume cannot be read: spec.capacity: no quantity".to_owned(),
        ]
    );
}

#[test]
fn of_a_volume_that_is_reserved_or_named_less_counts() {
    let store = Store::new();
    let key = ClaimKey::new("ns", "a");
    let reference = ClaimRef { namespace: "ns".into(), name: "a".into(), uid: None };
    let used = |name: &str| Volume { class: "slow".into(), phase: VolumePhase::Released, ..volume(name, 1) };
    for volume in [used("used"), Volume { claim_ref: Some(reference), ..used("mine") }] {
        apply(&store, volume);
    }
    apply(&store, Object::Volume("broken".into(), unreadable("uid", 1)));
    let requirement =
        Requirement { key: "tier".into(), operator: SelectorOperator::Exists, values: Vec::new() };
    let selector = Some(Selector::Requirements(vec![requirement]));
    let asking = Claim { request: gib(2), selector, ..claim(&key, 1) };
    let naming = |name: &str| Claim { volume_name: Some(name.into()), ..asking.clone() };
    let class = "spec.storageClassName: offers \"slow\", asked for none";
    let size = "spec.capacity.storage: offers 1Gi, asked for 2Gi";
    assert_eq!(
        told(&store, &asking),
        [
            format!("mine {size}"),
            format!(
                "used {class}; status.phase: is Released, must be Available; {size}; \
                 metadata.labels: offers none, asked for tier"
            ),
            "broken the volume cannot be read: spec.capacity: no quantity".to_owned(),
        ]
    );
    assert_eq!(told(&store, &naming("used")), [format!("used {class}; {size}")]);
    assert_eq!(told(&store, &naming("mine")), ["mine "]);
    assert_eq!(
        told(&store, &naming("broken")),
        ["broken the volume cannot be read: spec.capacity: no quantity"]
    );
    assert_eq!(told(&store, &naming("missing")), [""; 0]);
}
