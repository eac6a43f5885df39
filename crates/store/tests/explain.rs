//! The full explanation against the tallies of decisions: over random worlds both count the same reasons.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{
    AccessMode, Claim, ClaimKey, ClaimRef, Cluster, Query, Reason, Requirement, Selector, SelectorOperator,
    Text, Uid, Volume, VolumeMode, VolumePhase,
};
use bindery_store::{LiveReads, Observed, SessionLimits, Store};
use proptest::prelude::*;
use support::{Nothing, any_key, any_query, any_uid, any_volume, claim, gib, readable, unreadable, volume};

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
            store.apply_volume(name(number), observed);
        }
        for (number, key) in picked {
            store.reserve(&name(number), &key).ok();
        }
        for query in queries {
            let mut counts = BTreeMap::<Reason, u32>::new();
            let candidates = store.explain(&asking(&query, &key, &uid));
            prop_assert_eq!(candidates.len(), count);
            for candidate in &candidates {
                if let Some(first) = candidate.obstacles.first() {
                    *counts.entry(first.reason).or_default() += 1;
                }
                prop_assert!(candidate.obstacles.is_sorted_by_key(|obstacle| obstacle.reason));
            }
            let live = LiveReads::new();
            let mut session =
                store.session(&Nothing, &live, SessionLimits::default()).for_claim(key.clone(), uid.clone());
            let tallies = (&mut session as &mut dyn Cluster).tallies(query).unwrap();
            let tallied: BTreeMap<Reason, u32> =
                tallies.into_iter().map(|tally| (tally.reason, tally.count)).collect();
            prop_assert_eq!(counts, tallied);
        }
    }
}

/// The names and sentences of an explanation, in order.
fn told(store: &Store, claim: &Claim) -> Vec<String> {
    let line = |candidate: &bindery_store::Candidate| {
        let obstacles: Vec<String> = candidate.obstacles.iter().map(ToString::to_string).collect();
        format!("{} {}", candidate.volume, obstacles.join("; "))
    };
    store.explain(claim).iter().map(line).collect()
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
        store.apply_volume(volume.name.clone(), readable(volume));
    }
    store.apply_volume("broken".into(), unreadable("uid", 1));
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
