//! No wake-up is missed: over random changes, a key whose answer has changed is woken, or learns it when it
//! subscribes. Free volumes wake one key after the other (`waiting`).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "subscriptions/columns.rs"]
mod columns;
mod support;
#[path = "subscriptions/waiting.rs"]
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;

use bindery_core::{
    AccessModes, Answer, BindingMode, ClaimKey, Class, Cluster, DecisionLimits, Exchange, Handle, Question,
    Recorder, Source, Text, Uid, Version, Volume,
};
use bindery_kit::NoEnvironment;
use bindery_store::{
    Change, Dispatcher, Fact, Kind, LiveReads, Object, ObjectKey, ObservedPod, Offer, PodContent, Revision,
    Store, Subscriptions, facts_of,
};
use proptest::prelude::*;
use proptest::sample::select;
use support::{any_key, any_uid, any_volume, apply, claim, gone, list, pod_key, unreadable, volume};

#[derive(Clone, Debug)]
enum Step {
    Apply(usize, Volume),
    Break(usize),
    Assume(usize, Volume),
    Remove(usize),
    Relist(Vec<(usize, Volume)>),
    Unreserve(usize, ClaimKey),
    Claim(ClaimKey, Option<bool>),
    AssumeClaim(ClaimKey),
    Class(&'static str, Option<bool>),
    Pod(ClaimKey, Option<bool>),
    BreakPod(&'static str),
    RemovePod(&'static str),
    Node(bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    let name = 0..8_usize;
    prop_oneof![
        6 => (name.clone(), any_volume()).prop_map(|(name, volume)| Step::Apply(name, volume)),
        1 => name.clone().prop_map(Step::Break),
        4 => (name.clone(), any_volume()).prop_map(|(name, volume)| Step::Assume(name, volume)),
        2 => name.clone().prop_map(Step::Remove),
        1 => prop::collection::vec((name.clone(), any_volume()), 0..8).prop_map(Step::Relist),
        2 => (name, any_key()).prop_map(|(name, key)| Step::Unreserve(name, key)),
        1 => (any_key(), prop::option::of(any::<bool>()))
            .prop_map(|(key, readable)| Step::Claim(key, readable)),
        1 => any_key().prop_map(Step::AssumeClaim),
        1 => (select(vec!["fast", "slow"]), prop::option::of(any::<bool>()))
            .prop_map(|(name, default)| Step::Class(name, default)),
        1 => (any_key(), prop::option::of(any::<bool>()))
            .prop_map(|(key, scheduled)| Step::Pod(key, scheduled)),
        1 => select(vec!["another", "pod"]).prop_map(Step::BreakPod),
        1 => select(vec!["another", "pod"]).prop_map(Step::RemovePod),
        1 => any::<bool>().prop_map(Step::Node),
    ]
}

fn carry_out(store: &Store, version: u64, step: Step) -> Change {
    let name = |number: usize| Text::from(format!("v{number}"));
    let finish = |number: usize, volume: Volume| {
        let version = Version::from(&*version.to_string());
        Volume { name: name(number), version, ..volume }
    };
    match step {
        Step::Apply(number, volume) => apply(store, finish(number, volume)),
        Step::Break(number) => apply(store, Object::Volume(name(number), unreadable("uid", version))),
        Step::Assume(number, volume) => store.assume_volume(Arc::new(finish(number, volume))),
        Step::Remove(number) => gone(store, ObjectKey::Volume(name(number))),
        Step::Relist(volumes) => {
            let listed = volumes.into_iter().map(|(number, volume)| finish(number, volume));
            list(store, Kind::Volume, listed)
        }
        Step::Unreserve(number, key) => store.unreserve(&name(number), &key),
        Step::Claim(key, Some(true)) => apply(store, claim(&key, version)),
        Step::Claim(key, Some(false)) => apply(store, Object::Claim(key, unreadable("uid", version))),
        Step::Claim(key, None) => gone(store, ObjectKey::Claim(key)),
        Step::AssumeClaim(key) => store.assume_claim(Arc::new(claim(&key, version))),
        Step::Class(name, Some(default)) => apply(store, class(name, default)),
        Step::Class(name, None) => gone(store, ObjectKey::Class(name.into())),
        Step::Pod(key, Some(scheduled)) => apply(
            store,
            ObservedPod {
                namespace: key.namespace,
                name: "pod".into(),
                content: Ok(PodContent { claims: vec![key.name], scheduled, terminated: false }),
            },
        ),
        Step::Pod(_, None) => gone(store, pod_key("pod")),
        Step::BreakPod(name) => apply(
            store,
            ObservedPod { namespace: "ns".into(), name: name.into(), content: Err("spec: no pod's".into()) },
        ),
        Step::RemovePod(name) => gone(store, pod_key(name)),
        Step::Node(true) => apply(store, Object::Node("node".into())),
        Step::Node(false) => gone(store, ObjectKey::Node("node".into())),
    }
}

fn class(name: &str, default: bool) -> Class {
    Class { default, created: 1, ..bindery_kit::class(name, "p", Some(BindingMode::Immediate)) }
}

/// Questions of one decision.
#[derive(Clone, Debug)]
enum Asked {
    One(Question),
    Reserved(ClaimKey, Uid),
}

fn any_asked() -> impl Strategy<Value = Asked> {
    let source = || select(vec![Source::Overlay, Source::Cache]);
    let one = prop_oneof![
        (source(), 0..8_usize).prop_map(|(s, n)| Question::Volume(s, format!("v{n}").into())),
        (source(), any_key()).prop_map(|(source, key)| Question::Claim(source, key)),
        any_key().prop_map(Question::Pods),
        select(vec!["fast", "slow"]).prop_map(|name| Question::Class(name.into())),
        Just(Question::DefaultClasses),
        Just(Question::Node("node".into())),
        (0..16_u32).prop_map(|bits| Question::AccessSets(AccessModes::from_bits(bits).unwrap())),
    ];
    prop_oneof![
        2 => one.prop_map(Asked::One),
        1 => (any_key(), any_uid()).prop_map(|(key, uid)| Asked::Reserved(key, uid)),
    ]
}

/// The evidence of a decision: the exchanges, and the volumes of its handles.
type Learnt = (Vec<Exchange>, Vec<Text>);

fn converse(store: &Store, asked: &[Asked], describe: bool) -> (Learnt, Revision) {
    let live = LiveReads::new();
    let mut session = store.session(&NoEnvironment, &live, DecisionLimits::default());
    let since = session.revision();
    let mut recorder = Recorder::new(&mut session);
    let mut handles: BTreeSet<Handle> = BTreeSet::new();
    for asked in asked {
        let question = match asked.clone() {
            Asked::One(question) => question,
            Asked::Reserved(key, uid) => Question::ReservedFor { key, uid },
        };
        let mentioned = match recorder.ask(question).unwrap() {
            Answer::Reserved(handles) => handles,
            _ => Vec::new(),
        };
        handles.extend(&mentioned);
        for handle in mentioned.into_iter().filter(|_| describe) {
            recorder.ask(Question::Identify(handle)).unwrap();
        }
    }
    let exchanges = recorder.into_exchanges();
    ((exchanges, handles.into_iter().map(|handle| session.name(handle).unwrap()).collect()), since)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_key_whose_answer_changes_is_woken(
        before in prop::collection::vec(any_step(), 0..24),
        picked in prop::collection::vec((0..8_usize, any_key()), 0..3),
        keys in prop::collection::vec((prop::collection::vec(any_asked(), 1..4), any::<bool>()), 1..6),
        after in prop::collection::vec((any_step(), any::<bool>()), 1..12),
    ) {
        let store = Store::new();
        let subscriptions = Subscriptions::new();
        let mut version = 0;
        let mut next = || { version += 1; version };
        for step in before {
            carry_out(&store, next(), step);
        }
        for (number, key) in picked {
            let _ = store.reserve(&format!("v{number}"), &key, &[]);
        }
        let mut learnt: Vec<Learnt> = Vec::new();
        for (number, (asked, describe)) in keys.iter().enumerate() {
            let (facts, since) = converse(&store, asked, *describe);
            prop_assert!(!subscriptions.subscribe(number, since, facts_of(&facts.0)));
            learnt.push(facts);
        }
        for (step, interrupts) in after {
            // The change comes after the decision and before its subscription.
            let (number, (asked, describe)) = (keys.len(), &keys[0]);
            let (interrupted, since) = converse(&store, asked, *describe);
            let change = carry_out(&store, next(), step.clone());
            let is_once = |number: &usize| number.is_multiple_of(2);
            let woken: BTreeSet<usize> = wake(&subscriptions, &change, is_once).into_iter().collect();
            if interrupts {
                let told = subscriptions.subscribe(number, since, facts_of(&interrupted.0));
                let altered = converse(&store, asked, *describe).0 != interrupted;
                prop_assert!(told || !altered, "{:?} was told nothing of {:?}", interrupted, step);
                subscriptions.unsubscribe(&number);
            }
            for (number, (asked, describe)) in keys.iter().enumerate() {
                let (facts, since) = converse(&store, asked, *describe);
                let altered = facts != learnt[number];
                let slept = altered && !woken.contains(&number);
                prop_assert!(!slept, "{:?} slept through {:?}", learnt[number], step);
                if altered || (woken.contains(&number) && is_once(&number)) {
                    prop_assert!(!subscriptions.subscribe(number, since, facts_of(&facts.0)));
                    learnt[number] = facts;
                }
            }
        }
    }
}

/// If no key waits for a volume, no volume is offered.
struct Idle;

impl<K> Dispatcher<K> for Idle {
    fn free(&self, _: &str) -> Option<Arc<Volume>> {
        None
    }

    fn ask(&self, _: &K, _: Offer) -> bool {
        unreachable!("nothing is free")
    }
}

fn wake<K: Clone + Eq + std::hash::Hash>(
    subscriptions: &Subscriptions<K>,
    change: &Change,
    is_once: impl Fn(&K) -> bool,
) -> Vec<K> {
    subscriptions.wake(change, Offer::New, &Idle, is_once)
}

#[test]
fn a_key_that_is_woken_once_sleeps_until_it_subscribes_again() {
    let store = Store::new();
    let subscriptions = Subscriptions::new();
    let facts = || vec![Fact::Node("n".into())];
    for key in ["once", "always"] {
        assert!(!subscriptions.subscribe(key, store.revision(), facts()));
    }
    let mut is_known = false;
    let mut woken = || {
        let node = Object::Node("n".into());
        let change = if is_known { gone(&store, node.key()) } else { apply(&store, node) };
        is_known = !is_known;
        let mut keys = wake(&subscriptions, &change, |key| *key == "once");
        keys.sort_unstable();
        keys
    };
    let before = store.revision();
    assert_eq!(woken(), ["always", "once"]);
    assert_eq!(woken(), ["always"]);
    // A decision learns of changes that it has not seen.
    assert!(subscriptions.subscribe("once", before, facts()));
    assert_eq!(woken(), ["always", "once"]);
}

#[test]
fn a_late_change_is_still_found_when_a_key_subscribes() {
    let store = Store::new();
    let subscriptions = Subscriptions::new();
    let fact = |name: &str| vec![Fact::Volume(Source::Overlay, name.into())];
    let since = store.revision();
    let first = apply(&store, volume("v", 1));
    let second = apply(&store, volume("w", 2));
    assert!(wake(&subscriptions, &second, |_| false).is_empty());
    // The first change has not reached the subscriptions yet; it will wake the key.
    assert!(!subscriptions.subscribe("v", since, fact("v")));
    assert!(subscriptions.subscribe("w", since, fact("w")));
    assert_eq!(wake(&subscriptions, &first, |_| false), ["v"]);
    assert!(subscriptions.subscribe("late", since, fact("v")));
    assert!(!subscriptions.subscribe("late", second.revision, fact("v")));
}

#[test]
fn a_decision_older_than_what_is_remembered_is_made_again() {
    let store = Store::new();
    let subscriptions = Subscriptions::new();
    let since = store.revision();
    for version in 1..=2_000 {
        wake(&subscriptions, &apply(&store, volume("v", version)), |_| false);
    }
    let facts = || vec![Fact::Node("node".into())];
    assert!(subscriptions.subscribe("old", since, facts()));
    assert!(!subscriptions.subscribe("new", store.revision(), facts()));

    // A new list changes more facts than are remembered.
    let since = store.revision();
    let volumes = (0..1_000).map(|number| volume(&format!("w{number}"), 1));
    wake(&subscriptions, &list(&store, Kind::Volume, volumes), |_| false);
    assert!(subscriptions.subscribe("old", since, facts()));
}
