//! What ends a call: limits, questions without an answer, and live reads.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::sync::Arc;

use bindery_core::{
    Answer, ClaimKey, Cluster, Handle, Lookup, Query, Question, Requirement, SelectorOperator, Source, Stop,
};
use bindery_store::{LiveReads, SessionLimits, Store};
use support::{Nothing, claim, query, readable, volume};

fn store_of(volumes: usize) -> Store {
    let store = Store::new();
    for number in 0..volumes {
        let volume = volume(&format!("v{number:03}"), 1);
        store.apply_volume(volume.name.clone(), readable(volume));
    }
    store
}

/// Asks the same question again and again; how often it is answered, and what ends it.
fn ask_until_stopped(limits: SessionLimits, question: &Question) -> (u64, Stop) {
    let (store, live) = (store_of(64), LiveReads::new());
    let mut session = store.session(&Nothing, &live, limits);
    let mut answered = 0;
    loop {
        match session.ask(question.clone()) {
            Ok(_) => answered += 1,
            Err(stop) => return (answered, stop),
        }
    }
}

#[test]
fn every_limit_stops_the_call_beyond_it() {
    let limits = SessionLimits::default();
    let page = |limit| Question::Candidates { query: query(), after: None, limit };
    let too_many = |what, max| Stop::TooMany { what, max };

    let few_questions = SessionLimits { questions: 3, ..limits };
    assert_eq!(ask_until_stopped(few_questions, &Question::DefaultClasses), (3, too_many("questions", 3)));
    let few_rows = SessionLimits { rows: 50, ..limits };
    assert_eq!(ask_until_stopped(few_rows, &page(20)), (2, too_many("rows of candidates", 50)));
    let few_handles = SessionLimits { handles: 10, ..limits };
    assert_eq!(ask_until_stopped(few_handles, &page(11)), (0, too_many("volumes", 10)));
    let labels = vec![
        Requirement {
            key: "zone".into(),
            operator: SelectorOperator::NotIn,
            values: vec!["a".into(), "b".into()],
        };
        2
    ];
    let few_labels = SessionLimits { labels: 5, ..limits };
    let stop = too_many("label requirements and values in one query", 5);
    let selective = Query { labels, ..query() };
    assert_eq!(ask_until_stopped(few_labels, &Question::Tallies(selective.clone())), (0, stop.clone()));
    let page = Question::Candidates { query: selective, after: None, limit: 1 };
    assert_eq!(ask_until_stopped(few_labels, &page), (0, stop));
}

#[test]
fn a_page_that_asks_for_everything_ends_one_row_beyond_the_limit() {
    let (store, live) = (store_of(64), LiveReads::new());
    let limits = SessionLimits { rows: 10, ..SessionLimits::default() };
    let mut session = store.session(&Nothing, &live, limits);
    let stopped = session.ask(Question::Candidates { query: query(), after: None, limit: u32::MAX });
    assert_eq!(stopped, Err(Stop::TooMany { what: "rows of candidates", max: 10 }));
    assert!(session.name(Handle(10)).is_some() && session.name(Handle(11)).is_none());
}

#[test]
fn handles_are_numbered_by_first_mention() {
    let (store, live) = (store_of(4), LiveReads::new());
    let mut session = store.session(&Nothing, &live, SessionLimits::default());
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
    let mut session = store.session(&Nothing, &live, SessionLimits::default());
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
    let stopped = store.session(&Nothing, &live, SessionLimits::default()).ask(question.clone());
    assert_eq!(stopped, Err(Stop::LiveRead(question.clone())));

    let found = Answer::Claim(Lookup::Found(Arc::new(claim(&key, 3))));
    live.push(question.clone(), found.clone());
    store.apply_claim(key.clone(), readable(claim(&key, 4)));
    let mut session = store.session(&Nothing, &live, SessionLimits::default());
    // The read may be older than what the store has learnt meanwhile: the decision counts from its first
    // call.
    assert_eq!(session.revision(), before);
    assert_eq!(session.ask(question.clone()), Ok(found));
    assert_eq!(session.ask(question.clone()), Err(Stop::LiveRead(question)));
}
