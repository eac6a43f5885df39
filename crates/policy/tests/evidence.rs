//! What policies have said, as it is written down and asked for again, with native matchers.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use bindery_core::{
    Claim, ClaimFact, ClaimKey, ClaimRef, Cluster, DecisionLimits, Facts, Query, Requirement,
    SelectorOperator, Source, Stop, Text, Volume,
};
use bindery_kit::{
    AtMostTwice, Burning, Fails, Fewest, Larger, NoEnvironment, SameZone, ZONE, gib, keeps_labelled, policy,
    reclaim_rule, volume,
};
use bindery_policy::{
    Allowed, AnswerCache, Chain, Filtered, OnFailure, Otherwise, Policy, PolicyDifference, PolicyEvidence,
    PolicyFunction, Rounds, Unscored, Verdict,
};
use bindery_store::{Delivery, LiveReads, Store};

fn store(volumes: impl IntoIterator<Item = (String, u64, Text)>) -> Store {
    let store = Store::new();
    for (name, size, zone) in volumes {
        let labels = [(ZONE.into(), zone)].into();
        store.deliver(Delivery::applied(Volume { capacity: Some(gib(size)), labels, ..volume(&name) }));
    }
    store
}

/// Volumes of these sizes in zone `a`, and one in zone `b`.
fn sized(sizes: &[u64]) -> Store {
    let in_a = sizes.iter().map(|size| (format!("a{size}"), *size, "a".into()));
    store(in_a.chain([("b1".to_owned(), 1, "b".into())]))
}

/// A claim for one gibibyte in zone `a`.
fn claim() -> Claim {
    let facts: Facts<ClaimFact> = [(ClaimFact::Label(ZONE.into()), "a".into())].into_iter().collect();
    Claim { facts, ..bindery_kit::claim(ClaimKey::new("ns", "c")) }
}

/// The evidence of a decision that asks these questions.
fn evidence(
    store: &Store,
    chain: &Chain,
    kept: &AnswerCache,
    ask: impl Fn(&mut dyn Cluster, Query) -> Result<(), Stop>,
) -> PolicyEvidence {
    let (claim, live, mut rounds) = (claim(), LiveReads::new(), Rounds::default());
    loop {
        let mut session = store.session(&NoEnvironment, &live, DecisionLimits::default());
        let mut filtered = Filtered::new(&mut session, &claim, chain, kept, &mut rounds).unwrap();
        match ask(&mut filtered, Query::of_claim(&claim, claim.access_set())) {
            Ok(()) => return filtered.collected().evidence(chain),
            Err(stop) => assert_eq!(stop, Stop::Judge),
        }
        drop(session);
        rounds.perform(chain, kept).unwrap();
    }
}

fn first_page(cluster: &mut dyn Cluster, query: Query) -> Result<(), Stop> {
    cluster.candidates(query, None, 8).map(drop)
}

/// Asks as an engine does that takes no candidate.
fn everything(cluster: &mut dyn Cluster, query: Query) -> Result<(), Stop> {
    let mut after = None;
    loop {
        let page = cluster.candidates(query.clone(), after, 8)?;
        match page.handles.last() {
            Some(last) if page.more => after = Some(*last),
            _ => return cluster.tallies(query).map(drop),
        }
    }
}

/// Requires zone `a`, then rejects what is too large, then prefers the larger.
fn three() -> Chain {
    let zone = Policy { order: -2, ..policy("zone", SameZone) };
    let size = Policy { order: -1, ..policy("size", AtMostTwice::judging()) };
    Chain::new(vec![policy("larger", Larger { zone: None }), size, zone])
}

/// The volumes that each policy has judged, with its verdicts.
fn judged(evidence: &PolicyEvidence) -> Vec<(&str, Vec<(&str, Verdict)>)> {
    let matchers = evidence.matchers.iter();
    matchers
        .map(|said| {
            let volumes = said.volumes.iter().map(|volume| &**volume);
            (&*said.policy.name, volumes.zip(said.verdicts.iter().copied()).collect())
        })
        .collect()
}

#[test]
fn evidence_has_each_verdict_once_even_if_it_was_kept() {
    let (store, chain, kept) = (sized(&[1, 2, 3]), three(), AnswerCache::default());
    let asked = evidence(&store, &chain, &kept, everything);
    let (too_large, allowed) = (Verdict::Rejected(1), Verdict::Allowed(0));
    assert_eq!(
        judged(&asked),
        [
            ("zone", vec![]),
            ("size", vec![("a2", allowed), ("a1", allowed), ("a3", too_large)]),
            ("larger", vec![("a2", Verdict::Allowed(2)), ("a1", Verdict::Allowed(1))]),
        ]
    );
    assert_eq!(asked.volumes_left_out, 0);
    let size = &asked.matchers[1];
    assert_eq!(size.claim.facts, [Some("a".into())]);
    let shown: Vec<u64> = size.rows.whole.iter().map(|whole| whole >> 30).collect();
    assert_eq!((shown, &size.rows.texts), (vec![2, 1, 3], &vec!["a".into()]));
    let rows = |chain: &Chain| chain.policies().iter().map(|policy| policy.metrics.rows.get()).sum::<u64>();
    let before = rows(&chain);
    assert_eq!(evidence(&store, &chain, &kept, everything), asked);
    assert_eq!(rows(&chain), before, "every verdict was kept");
}

#[test]
fn a_volume_that_the_claim_names_is_in_evidence_as_the_engine_has_read_it() {
    let (store, chain) = (sized(&[3]), Chain::new(vec![policy("size", AtMostTwice::judging())]));
    let by_name = |cluster: &mut dyn Cluster, _: Query| {
        cluster.volume(Source::Overlay, "a3".into())?;
        cluster.verdict("a3".into()).map(drop)
    };
    let asked = evidence(&store, &chain, &AnswerCache::default(), by_name);
    assert_eq!(judged(&asked), [("size", vec![("a3", Verdict::Rejected(1))])]);
}

#[test]
fn evidence_has_the_numbers_that_a_policy_was_shown() {
    let chain = Chain::new(vec![policy("fewest", Fewest { most: 1, barrier: None })]);
    let (store, sibling) = (sized(&[1]), Claim { key: ClaimKey::new("ns", "sibling"), ..claim() });
    store.keep_spreads(&chain.declared().spreads);
    let (namespace, name) = (sibling.key.namespace.clone(), sibling.key.name.clone());
    let claim_ref = Some(ClaimRef { namespace, name, uid: Some(sibling.uid.clone()) });
    store.deliver(Delivery::applied(sibling));
    let labels = [(ZONE.into(), "a".into())].into();
    store.deliver(Delivery::applied(Volume { labels, claim_ref, ..volume("taken") }));
    let asked = evidence(&store, &chain, &AnswerCache::default(), everything);
    let verdicts = vec![("b1", Verdict::Allowed(100)), ("a1", Verdict::Rejected(0))];
    assert_eq!(judged(&asked), [("fewest", verdicts)]);
    assert_eq!(asked.matchers[0].rows.spread, [0, 1]);
    assert_eq!(asked.ask_again(&chain).differences, []);
}

#[test]
fn a_policy_that_was_skipped_is_in_evidence() {
    let skipped = Policy { on_failure: OnFailure::Skip, ..policy("fails", Fails) };
    let asked = evidence(&sized(&[1]), &Chain::new(vec![skipped]), &AnswerCache::default(), first_page);
    let told: Vec<_> = asked.skipped.iter().map(|it| (&*it.policy, it.why.as_str())).collect();
    assert_eq!((told, asked.matchers.len()), (vec![("fails", "it trapped: unreachable")], 0));
}

#[test]
fn of_many_volumes_the_allowed_ones_are_first_and_the_rest_is_counted() {
    let zone: Text = "a".into();
    let large = (0..5_000).map(|number| (format!("v{number:04}"), 3, zone.clone()));
    let size = || Chain::new(vec![policy("size", AtMostTwice::judging())]);
    let store = store(large.chain([("right".to_owned(), 2, zone.clone())]));
    let asked = evidence(&store, &size(), &AnswerCache::default(), everything);
    let volumes = &asked.matchers[0].volumes;
    let left_out = asked.ask_again(&size()).not_recorded;
    assert_eq!((volumes.len(), &*volumes[0], left_out), (4_096, "right", 5_001 - 4_096));
}

#[test]
fn evidence_about_volumes_with_long_values_is_bounded_in_bytes() {
    let long = (0..2_000).map(|number| (format!("v{number:04}"), 3, format!("{number:04096}").into()));
    let chain = Chain::new(vec![policy("size", AtMostTwice::judging())]);
    let asked = evidence(&store(long), &chain, &AnswerCache::default(), everything);
    let said = &asked.matchers[0];
    let bytes: usize = said.rows.texts.iter().map(|text| text.len()).sum();
    assert!(bytes <= (4 << 20) + 4_096 && said.volumes.len() > 1_000, "{bytes}");
    assert_eq!(said.volumes.len() + asked.volumes_left_out, 2_000);
}

fn difference(volume: Option<&str>, then: &str, now: &str) -> PolicyDifference {
    let (volume, then, now) = (volume.map(Into::into), then.to_owned(), now.to_owned());
    PolicyDifference { policy: "size".into(), volume, then, now }
}

#[test]
fn the_same_policies_answer_the_same_and_a_changed_row_is_found() {
    let (store, chain) = (sized(&[1, 3]), three());
    let mut asked = evidence(&store, &chain, &AnswerCache::default(), first_page);
    let again = asked.ask_again(&chain);
    assert_eq!((again.same, again.not_asked), (6, 0), "{again:?}");
    assert!(again.differences.is_empty() && again.notes.is_empty(), "{again:?}");
    let size = &mut asked.matchers[1];
    let row = size.volumes.iter().position(|volume| **volume == *"a3").unwrap();
    size.rows.whole[row] = 1 << 30;
    let again = asked.ask_again(&chain);
    assert_eq!(again.differences, [difference(Some("a3"), "rejected, too-large", "allowed, score 0")]);
    asked.matchers[1].rows.texts.clear();
    let again = asked.ask_again(&chain);
    let broken = "a record whose parts do not fit together";
    assert_eq!(again.differences, [difference(None, broken, "not asked")]);
}

#[test]
fn other_policies_are_told_and_asked_if_they_read_the_same() {
    let (store, chain) = (sized(&[1, 3]), three());
    let asked = evidence(&store, &chain, &AnswerCache::default(), first_page);
    let settings = r#"{"n":1}"#.to_owned();
    let narrows = Policy { settings, ..policy("size", Larger { zone: Some("a") }) };
    let other = Chain::new(vec![policy("zone", Fewest { most: 1, barrier: None }), narrows]);
    let again = asked.ask_again(&other);
    let (then, now) = (chain.digest(), other.digest());
    assert_eq!(
        again.notes,
        [
            format!("the loaded policies are {now}, and the recorded ones are {then}"),
            "policy zone: the loaded module is fewest, and the recorded one is SameZone".to_owned(),
            "policy zone: the loaded module declares other facts, columns or spread than the recorded one, \
             so it is not asked again"
                .to_owned(),
            "policy size: the loaded module is Larger, and the recorded one is AtMostTwice".to_owned(),
            r#"policy size: the settings are {"n":1}, and the recorded ones are {}"#.to_owned(),
            "policy larger is not loaded, so it is not asked again".to_owned(),
        ]
    );
    assert_eq!(
        again.differences,
        [
            difference(Some("a1"), "allowed, score 0", "allowed, score 1"),
            difference(Some("a3"), "rejected, too-large", "allowed, score 1"),
        ]
    );
    assert_eq!((again.same, again.not_asked), (1, 3));
}

#[test]
fn what_a_volume_must_be_is_asked_for_again_before_volumes_are_judged() {
    let asked = evidence(
        &sized(&[1, 3]),
        &Chain::new(vec![policy("size", AtMostTwice::judging())]),
        &AnswerCache::default(),
        first_page,
    );
    let again = asked.ask_again(&Chain::new(vec![policy("size", AtMostTwice::narrowing())]));
    let now = "at most 2Gi, else too-large; judges no volume";
    assert_eq!(again.differences, [difference(None, "judges volumes", now)]);
    let fails = asked.ask_again(&Chain::new(vec![policy("size", Fails)]));
    assert_eq!(fails.differences, [difference(None, "judges volumes", "it trapped: unreachable")]);
}

#[test]
fn volumes_beyond_the_limit_of_scored_ones_are_told() {
    let limited = |max| Policy { max_candidates: max, ..policy("larger", Larger { zone: None }) };
    let unscored = |policies| {
        evidence(&sized(&[1, 2]), &Chain::new(policies), &AnswerCache::default(), first_page).unscored
    };
    // Three volumes, with the one in zone `b`.
    assert_eq!(unscored(vec![limited(3)]), None);
    let larger = Unscored { policy: "larger".into(), max: 2 };
    assert_eq!(unscored(vec![limited(2)]), Some(larger.clone()));
    let most = Policy { name: "most".into(), ..limited(3) };
    assert_eq!(unscored(vec![most, limited(2)]), Some(larger));
    assert_eq!(unscored(vec![limited(2), policy("zone", SameZone)]), None);
}

#[test]
fn a_digest_covers_everything_that_decides_and_not_the_order_of_documents() {
    let rule = || reclaim_rule("keep", keeps_labelled());
    let digest = |change: fn(&mut Policy)| {
        let mut changed = policy("size", AtMostTwice::judging());
        change(&mut changed);
        Chain::new(vec![changed, policy("zone", SameZone)]).digest().to_owned()
    };
    let changes: [fn(&mut Policy); 11] = [
        |_| {},
        |it| it.name = "other".into(),
        |it| it.order = 1,
        |it| it.weight = 2,
        |it| it.settings = r#"{"times":2}"#.to_owned(),
        |it| it.max_candidates = 1,
        |it| it.on_failure = OnFailure::Skip,
        |it| it.otherwise = Otherwise::Wait,
        |it| it.matches.classes = vec!["fast".into()],
        |it| {
            let (key, operator) = ("team".into(), SelectorOperator::Exists);
            it.matches.namespace = vec![Requirement { key, operator, values: vec![] }];
        },
        |it| it.matcher = Ok(Arc::new(Fails)),
    ];
    let mut digests: Vec<String> = changes.map(digest).into();
    for allow in [vec![], vec![Allowed::Delete]] {
        let rule = bindery_policy::ReclaimRule { allow, ..rule() };
        digests.push(Chain::default().with_reclaimers(vec![rule]).digest().to_owned());
    }
    let all = digests.len();
    let turned = Chain::new(vec![policy("zone", SameZone), policy("size", AtMostTwice::judging())]);
    assert_eq!(turned.digest(), digests[0]);
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), all, "{digests:?}");
}

/// Prefers the larger, by calls that use this number of units of fuel and some for what they are shown.
fn burning(units: u64) -> Policy {
    policy("larger", Burning { units, policy: Larger { zone: None } })
}

fn fuel(evidence: &PolicyEvidence) -> Vec<String> {
    evidence.calls.iter().map(|call| format!("{}: {}", call.policy, call.fuel_in_words())).collect()
}

#[test]
fn a_call_has_its_fuel_where_it_was_made_and_other_fuel_is_found() {
    let (store, kept) = (sized(&[1, 2, 3]), AnswerCache::default());
    let chain = Chain::new(vec![burning(100), policy("zone", SameZone)]);
    let mut asked = evidence(&store, &chain, &kept, everything);
    let (narrow, judge) =
        ("larger: 101 units of fuel to narrow", "larger: 104 units of fuel to judge 3 rows");
    assert_eq!(fuel(&asked), [narrow, judge]);
    // Its verdicts are kept.
    assert_eq!(fuel(&evidence(&store, &chain, &kept, everything)), [narrow]);

    let again = |asked: &PolicyEvidence, policy: Policy| {
        let again = asked.ask_again(&Chain::new(vec![policy]));
        assert_eq!(again.differences, [], "the answers are the same");
        (again.fuel_same, again.fuel_differences)
    };
    assert_eq!(again(&asked, burning(100)), (2, vec![]));
    let differs = |then: u64, what: &str| {
        let [then, now] = [then, then + 1].map(|fuel| format!("{fuel} units of fuel to {what}"));
        PolicyDifference { policy: "larger".into(), ..difference(None, &then, &now) }
    };
    let differences = vec![differs(101, "narrow"), differs(104, "judge 3 rows")];
    assert_eq!(again(&asked, burning(101)), (0, differences));
    let settings = r#"{"n":1}"#.to_owned();
    assert_eq!(again(&asked, Policy { settings, ..burning(101) }), (0, vec![]));
    if let PolicyFunction::Judge(rows) = &mut asked.calls[1].function {
        rows.texts.clear();
    }
    let broken = "a record whose parts do not fit together";
    let broken = PolicyDifference { policy: "larger".into(), ..difference(None, broken, "not asked") };
    assert_eq!(asked.ask_again(&Chain::new(vec![burning(100)])).differences, [broken]);
    asked.calls.clear();
    assert_eq!(again(&asked, burning(101)), (0, vec![]));
}

#[test]
fn calls_about_many_volumes_are_bounded_in_rows() {
    let many = (1..=5_000).map(|number| (format!("v{number:04}"), number, "a".into()));
    let store = store(many);
    let size = Burning { units: 100, policy: AtMostTwice::judging() };
    let chain = Chain::new(vec![policy("size", size)]);
    let asked = evidence(&store, &chain, &AnswerCache::default(), everything);
    let rows = asked.calls.iter().map(|call| match &call.function {
        PolicyFunction::Judge(rows) => rows.whole.len(),
        PolicyFunction::Narrow | PolicyFunction::Reclaim => 0,
    });
    let rows: usize = rows.sum();
    assert!((3_000..=4_096).contains(&rows), "{rows}");
    assert_eq!(asked.ask_again(&chain).fuel_differences, []);
}
