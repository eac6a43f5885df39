//! What is asked later of an earlier moment is answered as it was then, or counts as unknown.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::sync::Arc;

use bindery_core::{
    Answer, Claim, ClaimKey, Cluster, DecisionLimits, Exchange, Page, Query, Question, Slot, Source, Text,
    Version, Volume,
};
use bindery_kit::NoEnvironment;
use bindery_store::{AsOf, Kind, LiveReads, Object, ObjectKey, Revision, Store};
use proptest::prelude::*;
use support::{Step, any_query, any_volume, apply, claim, gone, list, query, unreadable, volume};

fn any_step() -> impl Strategy<Value = Step> {
    // Most have what the query asks for.
    let volumes = || prop_oneof![1 => any_volume(), 3 => Just(volume("", 1))];
    support::any_step(6, volumes, [6, 1, 4, 2, 3, 3])
}

fn carry_out(store: &Store, version: usize, step: Step) {
    let name = |number: usize| Text::from(format!("v{number}"));
    let finish = |number: usize, volume: Volume| {
        let version = Version::from(&*version.to_string());
        Volume { name: name(number), version, ..volume }
    };
    match step {
        Step::Apply(number, volume) => _ = apply(store, finish(number, volume)),
        Step::Break(number) => {
            let unreadable = unreadable("uid", version as u64);
            _ = apply(store, Object::Volume(name(number), unreadable));
        }
        Step::Assume(number, volume) => _ = store.assume_volume(Arc::new(finish(number, volume))),
        Step::Remove(number) => _ = gone(store, ObjectKey::Volume(name(number))),
        Step::Reserve(number, key) => _ = store.reserve(&name(number), &key, &[]),
        Step::Unreserve(number, key) => _ = store.unreserve(&name(number), &key),
    }
}

/// The candidates of a query, page by page: names and whether each can be taken.
fn candidates(cluster: &mut dyn Cluster, query: &Query) -> Vec<(Text, u64, Slot)> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let Page { handles, whole, slots, more, .. } = cluster.candidates(query.clone(), after, 2).unwrap();
        for ((handle, whole), slot) in handles.iter().zip(whole).zip(slots) {
            found.push((cluster.identify(*handle).unwrap().name, whole, slot));
        }
        after = handles.last().copied();
        if !more {
            return found;
        }
    }
}

fn asker() -> Claim {
    claim(&ClaimKey::new("ns", "a"), 1)
}

fn now(store: &Store, query: &Query) -> (Vec<(Text, u64, Slot)>, Revision) {
    let live = LiveReads::new();
    let session = store.session(&NoEnvironment, &live, DecisionLimits::default());
    let mut session = session.for_claim(asker().key, asker().uid);
    (candidates(&mut session, query), session.at())
}

/// Answers as of a revision, with this evidence; `None` if that is not known.
fn then<T>(
    store: &Store,
    at: Revision,
    evidence: &[Exchange],
    ask: impl FnOnce(&mut AsOf<'_>) -> T,
) -> Option<T> {
    let as_of = AsOf::new(store, &NoEnvironment, DecisionLimits::default(), at, evidence, &[])?;
    Some(ask(&mut as_of.for_claim(asker().key, asker().uid)))
}

proptest! {
    #[test]
    fn free_volumes_are_those_of_the_moment(
        earlier in prop::collection::vec(any_step(), 0..24),
        later in prop::collection::vec(any_step(), 0..24),
        other in any_query(),
    ) {
        let store = Store::new();
        store.keep_history(true);
        let mut version = 1;
        let mut carry_out_all = |steps: Vec<Step>| for step in steps {
            version += 1;
            carry_out(&store, version, step);
        };
        carry_out_all(earlier);
        let queries = [query(), other];
        let before = queries.each_ref().map(|query| now(&store, query));
        carry_out_all(later);
        for (query, (expected, at)) in queries.iter().zip(before) {
            let found = then(&store, at, &[], |as_of| (candidates(as_of, query), as_of.is_known()));
            prop_assert_eq!(found, Some((expected, true)));
        }
    }
}

#[test]
fn a_fact_that_has_changed_since_is_unknown() {
    let store = Store::new();
    store.keep_history(true);
    for name in ["v", "w"] {
        apply(&store, volume(name, 1));
    }
    let key = ClaimKey::new("ns", "c");
    apply(&store, claim(&key, 1));
    let at = store.revision();
    apply(&store, claim(&key, 2));
    apply(&store, Volume { deleting: true, ..volume("w", 2) });
    let known = |evidence: &[Exchange], question: &Question| {
        then(&store, at, evidence, |as_of| (as_of.ask(question.clone()).unwrap(), as_of.is_known())).unwrap()
    };
    let of_claim = Question::Claim(Source::Overlay, key.clone());
    assert!(!known(&[], &of_claim).1);
    assert!(known(&[], &Question::Volume(Source::Overlay, "v".into())).1);
    // The decision was told, so the store is not asked.
    let told = Answer::Claim(bindery_core::Lookup::Absent);
    let evidence = [Exchange { question: of_claim.clone(), answer: told.clone() }];
    assert_eq!(known(&evidence, &of_claim), (told, true));
    // A volume that was free is as it was.
    let (answer, is_known) = known(&[], &Question::Volume(Source::Overlay, "w".into()));
    assert!(is_known && matches!(answer, Answer::Volume(bindery_core::Lookup::Found(w)) if !w.deleting));
    // One that is free since would have counted among the others.
    assert!(known(&[], &Question::Tallies(query())).1);
    apply(&store, volume("x", 3));
    assert!(!known(&[], &Question::Tallies(query())).1);
}

#[test]
fn what_is_forgotten_is_unknown() {
    let store = Store::new();
    let at = store.revision();
    assert!(then(&store, at, &[], |_| ()).is_none(), "no history is kept");
    store.keep_history(true);
    assert!(then(&store, at, &[], |_| ()).is_some());
    apply(&store, volume("v", 1));
    assert!(then(&store, at, &[], |_| ()).is_some());
    // A list after a 410 changes more than is remembered.
    list(&store, Kind::Volume, (0..300).map(|number| volume(&format!("w{number}"), 2)));
    assert!(then(&store, at, &[], |_| ()).is_none());
    assert!(then(&store, store.revision(), &[], |_| ()).is_some());
    let at = store.revision();
    store.keep_history(false);
    apply(&store, volume("x", 3));
    store.keep_history(true);
    assert!(then(&store, at, &[], |_| ()).is_none(), "a change was not remembered");
}
