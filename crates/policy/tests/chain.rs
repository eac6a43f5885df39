//! The chain, with native matchers, over the index of the store.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::Cell;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bindery_core::{
    AccessModes, Claim, ClaimFact, ClaimKey, Cluster, DecisionLimits, Facts, MatchVerdict, Query, Reason,
    Slot, Source, Stop, Volume,
};
use bindery_kit::{AtMostTwice, Fails, Larger, NoEnvironment, SameZone, ZONE, gib, policy, volume};
use bindery_policy::{AnswerCache, Chain, FaultCause, Filtered, OnFailure, Otherwise, Policy, Rounds};
use bindery_store::{Delivery, LiveReads, Store};

/// A store with free volumes: name, gibibytes, zone.
fn store(volumes: &[(&str, u64, &str)]) -> Store {
    let store = Store::new();
    for (name, size, zone) in volumes {
        let labels = [(ZONE.into(), (*zone).into())].into();
        let volume = Volume { capacity: Some(gib(*size)), labels, ..volume(name) };
        store.deliver(Delivery::applied(volume));
    }
    store
}

/// A claim for one gibibyte in a zone.
fn claim(zone: &str) -> Claim {
    let facts: Facts<ClaimFact> = [(ClaimFact::Label(ZONE.into()), zone.into())].into_iter().collect();
    Claim { facts, ..bindery_kit::claim(ClaimKey::new("ns", "c")) }
}

/// What an engine is told: the names of the volumes that can be taken, those that are withheld, and how many
/// are rejected.
#[derive(Debug, PartialEq)]
struct Seen {
    free: Vec<String>,
    withheld: Vec<String>,
    rejected: u32,
}

/// Asks for all candidates, as an engine does that takes none, and has the matchers asked in between.
fn see(store: &Store, chain: &Chain, kept: &AnswerCache, claim: &Claim) -> Result<Seen, Stop> {
    let mut rounds = Rounds::default();
    loop {
        match try_to_see(store, chain, kept, claim, &mut rounds) {
            Err(Stop::Judge) => rounds.perform(chain, kept)?,
            seen => return seen,
        }
    }
}

/// As [`see`], with nothing kept.
fn see_anew(store: &Store, chain: &Chain, claim: &Claim) -> Result<Seen, Stop> {
    see(store, chain, &AnswerCache::default(), claim)
}

fn try_to_see(
    store: &Store,
    chain: &Chain,
    kept: &AnswerCache,
    claim: &Claim,
    rounds: &mut Rounds,
) -> Result<Seen, Stop> {
    let live = LiveReads::new();
    let mut session = store.session(&NoEnvironment, &live, DecisionLimits::default());
    let mut filtered = Filtered::new(&mut session, claim, chain, kept, rounds).expect("a policy applies");
    let cluster: &mut dyn Cluster = &mut filtered;
    let query = Query::of_claim(claim, claim.access_set());
    let mut seen = Seen { free: Vec::new(), withheld: Vec::new(), rejected: 0 };
    let mut after = None;
    loop {
        let page = cluster.candidates(query.clone(), after, 2)?;
        for (handle, slot) in page.handles.iter().zip(&page.slots) {
            let name = cluster.identify(*handle)?.name.to_string();
            match slot {
                Slot::Free => seen.free.push(name),
                Slot::Withheld => seen.withheld.push(name),
                Slot::InFlight => panic!("no decision is in flight"),
            }
        }
        match page.handles.last() {
            Some(last) if page.more => after = Some(*last),
            _ => break,
        }
    }
    let tallies = cluster.tallies(query)?;
    let rejected = tallies.iter().find(|tally| tally.reason == Reason::Rejected);
    seen.rejected = rejected.map_or(0, |tally| tally.count);
    Ok(seen)
}

fn seen(free: &[&str], withheld: &[&str], rejected: u32) -> Result<Seen, Stop> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Ok(Seen { free: names(free), withheld: names(withheld), rejected })
}

#[test]
fn requirements_leave_out_what_they_reject() {
    let store = store(&[("a1", 1, "a"), ("b1", 1, "b"), ("a2", 2, "a"), ("a3", 3, "a"), ("small", 0, "a")]);
    let chain = Chain::new(vec![policy("zone", SameZone), policy("size", AtMostTwice::narrowing())]);
    let kept = AnswerCache::default();
    assert_eq!(see(&store, &chain, &kept, &claim("a")), seen(&["a1", "a2"], &[], 2));
    assert_eq!(see(&store, &chain, &kept, &claim("c")), seen(&[], &[], 4));
    assert_eq!(kept.verdicts().values().sum::<usize>(), 0, "no row is judged");
}

#[test]
fn rejections_are_counted_by_policy_and_told_once_all_are_known() {
    let store = store(&[("a1", 1, "a"), ("b1", 1, "b"), ("b2", 2, "b"), ("a3", 3, "a"), ("small", 0, "a")]);
    let (claim, live, kept) = (claim("a"), LiveReads::new(), AnswerCache::default());
    let told = |otherwise, all: bool| {
        let zone = Policy { otherwise, ..policy("zone", SameZone) };
        let chain = Chain::new(vec![policy("size", AtMostTwice::narrowing()), zone]);
        let (query, mut rounds) = (Query::of_claim(&claim, claim.access_set()), Rounds::default());
        loop {
            let mut session = store.session(&NoEnvironment, &live, DecisionLimits::default());
            let filtered = Filtered::new(&mut session, &claim, &chain, &kept, &mut rounds);
            let mut filtered = filtered.unwrap();
            let cluster: &mut dyn Cluster = &mut filtered;
            let asked = if all {
                cluster.tallies(query.clone()).map(drop)
            } else {
                cluster.candidates(query.clone(), None, 8).and_then(|page| {
                    cluster.candidates(query.clone(), page.handles.last().copied(), 8).map(drop)
                })
            };
            match asked {
                Err(Stop::Judge) => {}
                asked => {
                    return asked.map(|()| filtered.rejections().map(|rejections| rejections.to_string()));
                }
            }
            drop(session);
            rounds.perform(&chain, &kept).unwrap();
        }
    };
    let short = Ok(Some("3 of 4 volumes rejected: zone 2, size 1".to_owned()));
    assert_eq!(told(Otherwise::Provision, true), short);
    assert_eq!(told(Otherwise::Wait, false), short);
    assert_eq!(told(Otherwise::Provision, false), Ok(None), "rejected volumes were not looked at");
}

#[test]
fn a_row_is_judged_once_and_again_only_when_it_changes() {
    let volumes: Vec<_> = (0..100).map(|number| (format!("v{number:03}"), 3 + number, "a")).collect();
    let volumes: Vec<_> = volumes.iter().map(|(name, size, zone)| (name.as_str(), *size, *zone)).collect();
    let store = store(&volumes);
    let chain = Chain::new(vec![policy("size", AtMostTwice::judging())]);
    let kept = AnswerCache::default();
    let rows = || chain.policies()[0].metrics.rows.get();
    assert_eq!(see(&store, &chain, &kept, &claim("a")), seen(&[], &[], 100));
    assert_eq!(rows(), 100);
    assert_eq!(see(&store, &chain, &kept, &claim("a")), seen(&[], &[], 100));
    assert_eq!(rows(), 100);
    store.deliver(Delivery::applied(Volume {
        capacity: Some(gib(2)),
        version: "2".into(),
        ..volume("v007")
    }));
    assert_eq!(see(&store, &chain, &kept, &claim("a")), seen(&["v007"], &[], 99));
    assert_eq!(rows(), 101);
    let labels = [(ZONE.into(), "b".into())].into();
    store.deliver(Delivery::applied(Volume {
        capacity: Some(gib(9)),
        labels,
        version: "3".into(),
        ..volume("v006")
    }));
    assert_eq!(see(&store, &chain, &kept, &claim("a")), seen(&["v007"], &[], 99));
    assert_eq!(rows(), 102);
    assert_eq!(chain.policies()[0].metrics.rejected().take(2).collect::<Vec<_>>(), [0, 101]);
    assert_eq!(kept.verdicts(), [(0, 102)].into());
}

#[test]
fn the_best_fit_is_found_without_judging_what_follows_it() {
    let volumes: Vec<_> = (0..100).map(|number| (format!("v{number:03}"), 1 + number, "a")).collect();
    let volumes: Vec<_> = volumes.iter().map(|(name, size, zone)| (name.as_str(), *size, *zone)).collect();
    let store = store(&volumes);
    let chain = Chain::new(vec![policy("size", AtMostTwice::judging())]);
    let (kept, claim, live) = (AnswerCache::default(), claim("a"), LiveReads::new());
    let mut rounds = Rounds::default();
    let first = loop {
        let mut session = store.session(&NoEnvironment, &live, DecisionLimits::default());
        let mut filtered = Filtered::new(&mut session, &claim, &chain, &kept, &mut rounds).unwrap();
        let cluster: &mut dyn Cluster = &mut filtered;
        match cluster.candidates(Query::of_claim(&claim, AccessModes::from_bits(1).unwrap()), None, 8) {
            Ok(page) => break cluster.identify(page.handles[0]).unwrap().name,
            Err(stop) => assert_eq!(stop, Stop::Judge),
        }
        drop(session);
        rounds.perform(&chain, &kept).unwrap();
    };
    assert_eq!(&*first, "v000");
    assert_eq!(chain.policies()[0].metrics.rows.get(), 8);
}

#[test]
fn scores_are_weighted_and_ties_go_to_the_smaller_volume() {
    let store = store(&[("a1", 1, "a"), ("a2", 2, "a"), ("b2", 2, "b"), ("a3", 3, "a")]);
    let larger = policy("larger", Larger { zone: None });
    assert_eq!(
        see_anew(&store, &Chain::new(vec![larger]), &claim("a")),
        seen(&["a3", "a2", "b2", "a1"], &[], 0)
    );
    let zone_b = Policy { weight: 100, ..policy("zone", Larger { zone: Some("b") }) };
    let chain = Chain::new(vec![policy("larger", Larger { zone: None }), zone_b]);
    assert_eq!(see_anew(&store, &chain, &claim("a")), seen(&["b2", "a3", "a2", "a1"], &[], 0));
    // Only the smallest are scored.
    let few = Policy { max_candidates: 2, ..policy("larger", Larger { zone: None }) };
    assert_eq!(see_anew(&store, &Chain::new(vec![few]), &claim("a")), seen(&["a2", "a1"], &[], 0));
}

#[test]
fn later_policies_judge_only_what_earlier_ones_allow() {
    let store = store(&[("a1", 1, "a"), ("a3", 3, "a"), ("a4", 4, "a")]);
    let first = Policy { order: -1, ..policy("size", AtMostTwice::judging()) };
    let chain = Chain::new(vec![policy("larger", Larger { zone: None }), first]);
    assert_eq!(see_anew(&store, &chain, &claim("a")), seen(&["a1"], &[], 2));
    let rows: Vec<_> =
        chain.policies().iter().map(|policy| (&*policy.name, policy.metrics.rows.get())).collect();
    assert_eq!(rows, [("size", 3), ("larger", 1)]);
}

#[test]
fn rejected_volumes_are_withheld_where_the_claim_is_to_wait() {
    let store = store(&[("b1", 1, "b"), ("b2", 2, "b")]);
    let waits = Policy { otherwise: Otherwise::Wait, ..policy("zone", SameZone) };
    let chain = Chain::new(vec![waits]);
    assert_eq!(see_anew(&store, &chain, &claim("a")), seen(&[], &["b1", "b2"], 2));
    assert_eq!(see_anew(&store, &chain, &claim("b")), seen(&["b1", "b2"], &[], 0));
}

#[test]
fn a_volume_that_the_claim_names_is_judged_as_the_engine_has_read_it() {
    let store = store(&[("a1", 1, "a"), ("b1", 1, "b")]);
    let chain = Chain::new(vec![policy("zone", SameZone), policy("size", AtMostTwice::judging())]);
    let (kept, claim, live) = (AnswerCache::default(), claim("a"), LiveReads::new());
    let verdict = |name: &str, is_read: bool| {
        let mut rounds = Rounds::default();
        loop {
            let mut session = store.session(&NoEnvironment, &live, DecisionLimits::default());
            let filtered = Filtered::new(&mut session, &claim, &chain, &kept, &mut rounds);
            let cluster: &mut dyn Cluster = &mut filtered.unwrap();
            if is_read {
                cluster.volume(Source::Overlay, name.into()).unwrap();
            }
            match cluster.verdict(name.into()) {
                Err(Stop::Judge) => {}
                verdict => return verdict,
            }
            drop(session);
            rounds.perform(&chain, &kept).unwrap();
        }
    };
    let rejected = MatchVerdict::Rejected { policy: "zone".into(), reason: "its zone is b, not a".into() };
    assert_eq!(verdict("a1", true), Ok(MatchVerdict::Allowed));
    assert_eq!(verdict("b1", true), Ok(rejected));
    assert!(matches!(verdict("b1", false), Err(Stop::Nonsense(_))));
}

#[test]
fn kept_answers_are_bounded_in_bytes_and_the_oldest_go() {
    let store = store(&[("a1", 1, "a")]);
    let chain = Chain::new(vec![policy("size", AtMostTwice::judging())]);
    // Each claim takes a little more than 100 kB, because its fact is kept twice.
    let kept = AnswerCache::new(250_000);
    let zones: Vec<_> = ["a", "b", "c", "d", "e"].map(|zone| zone.repeat(50_000)).into();
    let rows_after = |zone: &str| {
        see(&store, &chain, &kept, &claim(zone)).unwrap();
        chain.policies()[0].metrics.rows.get()
    };
    for zone in &zones {
        rows_after(zone);
    }
    assert_eq!(kept.verdicts(), [(0, 2)].into());
    assert_eq!([rows_after(&zones[4]), rows_after(&zones[3]), rows_after(&zones[0])], [5, 5, 6]);
    assert_eq!(kept.verdicts(), [(0, 2)].into());
    assert_eq!(rows_after(&zones[4]), 7);
}

thread_local! {
    static CLOCK_READS: Cell<u32> = const { Cell::new(0) };
}

/// A clock that is read before and after each call, and goes on by a quarter of a second in between.
fn clock() -> Instant {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    CLOCK_READS.set(CLOCK_READS.get() + 1);
    *BEGIN + CLOCK_READS.get() * Duration::from_millis(250)
}

#[test]
fn a_decision_whose_calls_take_too_long_waits_and_the_next_one_continues() {
    let volumes: Vec<_> = (0..3_000).map(|number| format!("v{number:04}")).collect();
    // All differ, because volumes that look the same are judged once.
    let sized = volumes.iter().zip(3..).map(|(name, size)| (name.as_str(), size, "a"));
    let store = store(&sized.collect::<Vec<_>>());
    let policies = vec![policy("zone", SameZone), policy("size", AtMostTwice::judging())];
    let chain = Chain::new(policies).within(Duration::from_secs(1), clock);
    let kept = AnswerCache::default();
    // Two narrowings and rounds of 8, 64 and 512 volumes; then the rounds again, and two calls of 512.
    for calls in [5, 10] {
        let Err(Stop::Waits { policy, why }) = see(&store, &chain, &kept, &claim("a")) else {
            panic!("it ends in time")
        };
        assert_eq!((&*policy, CLOCK_READS.get() / 2), ("size", calls));
        assert!(why.contains("more than 1s for one decision"), "{why}");
    }
    assert_eq!(see(&store, &chain, &kept, &claim("a")), seen(&[], &[], 3_000));
    assert_eq!(CLOCK_READS.get() / 2, 14);
}

#[test]
fn a_failing_policy_holds_its_claims_or_is_skipped() {
    let store = store(&[("a1", 1, "a"), ("b1", 1, "b")]);
    let chain = |on_failure| {
        let unloaded =
            Policy { on_failure, matcher: Err("it is 200 MiB".to_owned()), ..policy("u", SameZone) };
        let fails = Policy { on_failure, ..policy("fails", Fails) };
        [
            Chain::new(vec![fails, policy("zone", SameZone)]),
            Chain::new(vec![unloaded, policy("zone", SameZone)]),
        ]
    };
    for chain in chain(OnFailure::Skip) {
        assert_eq!(see_anew(&store, &chain, &claim("a")), seen(&["a1"], &[], 1));
    }
    let [fails, unloaded] = chain(OnFailure::Wait);
    let waits = |policy: &str, why: &str| Err(Stop::Waits { policy: policy.into(), why: why.to_owned() });
    let trapped = "it trapped: unreachable";
    assert_eq!(see_anew(&store, &fails, &claim("a")), waits("fails", trapped));
    assert_eq!(see_anew(&store, &unloaded, &claim("a")), waits("u", "it is 200 MiB"));
    assert_eq!(fails.policies()[0].metrics.faults(FaultCause::Trapped), 1);
    let (_, message) = fails.policies()[0].metrics.last_fault.get().unwrap();
    assert_eq!(&*message, trapped);
}
