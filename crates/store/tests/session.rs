//! What ends a call: limits, questions without an answer, and live reads.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::sync::Arc;

use bindery_core::{
    Answer, ClaimKey, ClaimRef, Cluster, DecisionLimits, Handle, Lookup, Query, Question, Requirement,
    SelectorOperator, Source, Stop, Volume,
};
use bindery_kit::NoEnvironment;
use bindery_store::{LiveReads, Store};
use support::{apply, claim, query, volume};

fn store_of(volumes: usize) -> Store {
    let store = Store::new();
    for number in 0..volumes {
        let volume = volume(&format!("v{number:03}"), 1);
        apply(&store, volume);
    }
    store
}

/// Asks the same question again and again about 64 free volumes and two reserved ones; returns the number of
/// answers, and why the call ended.
fn ask_until_stopped(limits: DecisionLimits, question: &Question) -> (u64, Stop) {
    let (store, live) = (store_of(64), LiveReads::new());
    for name in ["r1", "r2"] {
        let claim_ref = ClaimRef { namespace: "ns".into(), name: "reserved".into(), uid: None };
        let reserved = Volume { claim_ref: Some(claim_ref), ..volume(name, 1) };
        apply(&store, reserved);
    }
    let mut session = store.session(&NoEnvironment, &live, limits);
    let mut answered = 0;
    loop {
        match session.ask(question.clone()) {
            Ok(_) => answered += 1,
            Err(stop) => return (answered, stop),
        }
    }
}

#[test]
fn each_limit_stops_the_call_at_the_question_beyond_it() {
    let limits = DecisionLimits::default();
    let page = |query, limit| Question::Candidates { query, after: None, limit };
    let not_in = SelectorOperator::NotIn;
    let requirement =
        Requirement { key: "zone".into(), operator: not_in, values: vec!["a".into(), "b".into()] };
    let selective = || Query { labels: vec![requirement.clone(); 2], ..query() };
    let reserved = || Question::ReservedFor { key: ClaimKey::new("ns", "reserved"), uid: "u".into() };
    let labels = "label requirements and values of one query";
    for (limits, question, answered, what, max) in [
        (DecisionLimits { questions: 3, ..limits }, Question::DefaultClasses, 3, "questions", 3),
        (DecisionLimits { searches: 2, ..limits }, page(query(), 1), 2, "searches of the index", 2),
        (DecisionLimits { searches: 2, ..limits }, reserved(), 2, "searches of the index", 2),
        (DecisionLimits { rows: 50, ..limits }, page(query(), 20), 2, "rows", 50),
        (DecisionLimits { rows: 7, ..limits }, reserved(), 3, "rows", 7),
        (DecisionLimits { labels: 5, ..limits }, Question::Tallies(selective()), 0, labels, 5),
        (DecisionLimits { labels: 5, ..limits }, page(selective(), 1), 0, labels, 5),
        (
            DecisionLimits { question_bytes: 9, ..limits },
            Question::Class("four".into()),
            2,
            "bytes of questions",
            9,
        ),
    ] {
        assert_eq!(ask_until_stopped(limits, &question), (answered, Stop::TooMany { what, max }));
    }
}

#[test]
fn a_page_that_asks_for_everything_ends_one_row_beyond_the_limit() {
    let (store, live) = (store_of(64), LiveReads::new());
    let limits = DecisionLimits { rows: 10, ..DecisionLimits::default() };
    let mut session = store.session(&NoEnvironment, &live, limits);
    let stopped = session.ask(Question::Candidates { query: query(), after: None, limit: u32::MAX });
    assert_eq!(stopped, Err(Stop::TooMany { what: "rows", max: 10 }));
    assert!(session.name(Handle(10)).is_some() && session.name(Handle(11)).is_none());
}

#[test]
fn handles_are_numbered_by_first_mention() {
    let (store, live) = (store_of(4), LiveReads::new());
    let mut session = store.session(&NoEnvironment, &live, DecisionLimits::default());
    let cluster: &mut dyn Cluster = &mut session;
    let first = cluster.candidates(query(), None, 2).unwrap();
    assert_eq!((first.handles, first.more), (vec![Handle(0), Handle(1)], true));
    let rest = cluster.candidates(query(), Some(Handle(0)), 8).unwrap();
    assert_eq!((rest.handles, rest.more), (vec![Handle(1), Handle(2), Handle(3)], false));
    assert_eq!(session.name(Handle(3)).as_deref(), Some("v003"));
}

#[test]
fn what_makes_no_sense_stops_the_call() {
    let (store, live) = (store_of(4), LiveReads::new());
    let mut session = store.session(&NoEnvironment, &live, DecisionLimits::default());
    for question in [
        Question::Identify(Handle(0)),
        Question::Describe(Handle(7)),
        Question::Candidates { query: query(), after: None, limit: 0 },
        Question::Candidates { query: query(), after: Some(Handle(0)), limit: 1 },
    ] {
        assert!(matches!(session.ask(question), Err(Stop::Nonsense(_))));
    }
}

#[test]
fn a_live_read_stops_the_call_until_it_is_answered() {
    let store = store_of(1);
    let key = ClaimKey::new("ns", "c");
    let question = Question::Claim(Source::Live, key.clone());
    let mut live = LiveReads::new();
    let before = store.revision();
    let stopped = store.session(&NoEnvironment, &live, DecisionLimits::default()).ask(question.clone());
    assert_eq!(stopped, Err(Stop::LiveRead(question.clone())));

    let found = Answer::Claim(Lookup::Found(Arc::new(claim(&key, 3))));
    live.push(question.clone(), found.clone());
    apply(&store, claim(&key, 4));
    let mut session = store.session(&NoEnvironment, &live, DecisionLimits::default());
    // The read may be older than later deliveries to the store, so the decision counts from its first call.
    assert_eq!(session.revision(), before);
    assert_eq!(session.ask(question.clone()), Ok(found));
    assert_eq!(session.ask(question.clone()), Err(Stop::LiveRead(question)));
}
