//! Policies that spread volumes among siblings, with a native matcher, over the store.

#![allow(clippy::unwrap_used, reason = "tests")]

use bindery_core::{
    Claim, ClaimFact, ClaimKey, ClaimRef, Cluster, DecisionLimits, Facts, Query, Siblings, Spread, Stop,
    Volume, VolumeFact,
};
use bindery_kit::{APP, Fewest, NoEnvironment, ZONE, policy, volume};
use bindery_policy::{AnswerCache, Chain, Filtered, Matcher as _, Metadata, Rounds, SpreadCounts};
use bindery_store::{Delivery, LiveReads, Store};

fn claim(namespace: &str, name: &str, app: &str) -> Claim {
    let facts: Facts<ClaimFact> = [(ClaimFact::Label(APP.into()), app.into())].into_iter().collect();
    Claim { facts, ..bindery_kit::claim(ClaimKey::new(namespace, name)) }
}

fn in_zone(name: &str, zone: &str, owner: Option<&Claim>) -> Volume {
    let labels = [(ZONE.into(), zone.into())].into();
    let claim_ref = owner.map(|claim| ClaimRef {
        namespace: claim.key.namespace.clone(),
        name: claim.key.name.clone(),
        uid: Some(claim.uid.clone()),
    });
    Volume { labels, claim_ref, ..volume(name) }
}

/// A store with a free volume in zones `a` and `b`, and claims with a volume each.
fn store(chain: &Chain, owned: &[(Claim, &str)]) -> Store {
    let store = Store::new();
    store.keep_spreads(&chain.declared().spreads);
    for zone in ["a", "b"] {
        store.deliver(Delivery::applied(in_zone(zone, zone, None)));
    }
    for (claim, zone) in owned {
        store.deliver(Delivery::applied(claim.clone()));
        store.deliver(Delivery::applied(in_zone(&format!("of-{}", claim.key.name), zone, Some(claim))));
    }
    store
}

/// The free volumes that an engine is told, in order, and what the answer rests on.
fn see(store: &Store, chain: &Chain, kept: &AnswerCache, claim: &Claim) -> (Vec<String>, SpreadCounts) {
    let (mut rounds, live) = (Rounds::default(), LiveReads::new());
    loop {
        let mut session = store.session(&NoEnvironment, &live, DecisionLimits::default());
        let mut filtered = Filtered::new(&mut session, claim, chain, kept, &mut rounds).unwrap();
        let cluster: &mut dyn Cluster = &mut filtered;
        match cluster.candidates(Query::of_claim(claim, claim.access_set()), None, 8) {
            Ok(page) => {
                let name = |handle| cluster.identify(handle).unwrap().name.to_string();
                let names = page.handles.into_iter().map(name).collect();
                return (names, filtered.into_spread_counts());
            }
            Err(stop) => assert_eq!(stop, Stop::Judge),
        }
        drop(session);
        rounds.perform(chain, kept).unwrap();
    }
}

fn chain(most: u32) -> Chain {
    Chain::new(vec![policy("spread", Fewest { most, barrier: None })])
}

#[test]
fn the_zone_with_the_fewest_volumes_of_siblings_comes_first() {
    let (chain, db) = (chain(9), |name: &str| claim("ns", name, "db"));
    let first =
        |owned: &[(Claim, &str)]| see(&store(&chain, owned), &chain, &AnswerCache::default(), &db("c")).0;
    assert_eq!(first(&[]), ["a", "b"]);
    assert_eq!(first(&[(db("x"), "a")]), ["b", "a"]);
    assert_eq!(first(&[(db("x"), "a"), (db("y"), "b"), (db("z"), "b")]), ["a", "b"]);
    // Of another application, of another namespace, and its own.
    let others = [(claim("ns", "x", "web"), "a"), (claim("other", "y", "db"), "a"), (db("c"), "a")];
    assert_eq!(first(&others), ["a", "b"]);
}

#[test]
fn volumes_that_decisions_in_flight_have_picked_count() {
    let (chain, c) = (chain(9), claim("ns", "c", "db"));
    let store = store(&chain, &[]);
    store.deliver(Delivery::applied(claim("ns", "x", "db")));
    store.deliver(Delivery::applied(in_zone("a2", "a", None)));
    store.reserve("a2", &ClaimKey::new("ns", "x"), &[]).unwrap();
    assert_eq!(see(&store, &chain, &AnswerCache::default(), &c).0, ["b", "a", "a2"]);
}

#[test]
fn a_row_is_judged_again_when_its_number_has_changed() {
    let (chain, kept, c) = (chain(9), AnswerCache::default(), claim("ns", "c", "db"));
    let rows = || chain.policies()[0].metrics.rows.get();
    let x = claim("ns", "x", "db");
    let store = store(&chain, &[]);
    see(&store, &chain, &kept, &c);
    // The matcher sees no difference between the two volumes.
    assert_eq!(rows(), 1);
    store.deliver(Delivery::applied(x.clone()));
    store.deliver(Delivery::applied(in_zone("of-x", "a", Some(&x))));
    assert_eq!(see(&store, &chain, &kept, &c).0, ["b", "a"]);
    assert_eq!(rows(), 2);
}

#[test]
fn an_answer_rests_on_what_was_counted_and_on_the_numbers_that_rejected() {
    let (chain, c) = (chain(1), claim("ns", "c", "db"));
    let store = store(&chain, &[(claim("ns", "x", "db"), "a")]);
    let (free, spread_counts) = see(&store, &chain, &AnswerCache::default(), &c);
    let spread = chain.declared().spreads.into_iter().next().unwrap();
    let siblings = Siblings::of_claim(&spread, &c);
    assert_eq!(free, ["b"]);
    assert_eq!(spread_counts.counted, [store.siblings(&c, &spread)]);
    assert_eq!(spread_counts.rejected, [(siblings, Some("a".into()))]);
}

#[test]
fn siblings_are_told_by_facts_of_the_claim_itself() {
    let fewest = Fewest { most: 1, barrier: None };
    let among = |fact| {
        let spread = Spread { by: VolumeFact::ClassName, among: vec![fact] };
        Metadata { spread: Some(spread), ..fewest.metadata().clone() }.check()
    };
    assert_eq!(among(ClaimFact::OwnerName), Ok(()));
    for fact in [ClaimFact::NamespaceLabel("team".into()), ClaimFact::ClassParameter("tier".into())] {
        let refused = among(fact).unwrap_err();
        assert!(refused.ends_with("name labels, annotations or the owner of the claim"), "{refused}");
    }
}
