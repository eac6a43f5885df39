//! What other answers of policies make of a recorded decision.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use bindery_core::{
    AccessModes, Answer, Claim, ClaimKey, Decision, Evidence, Exchange, Lookup, Page, Query, Question,
    Request, Source, Subject, Text, Volume,
};
use bindery_kit::{AtMostTwice, Fails, Larger, SameZone, gib, keeps_labelled, volume};
use bindery_policy::{
    AskedPolicy, Candidates, Chain, ClaimView, Effect, Judged, Matcher, MatcherEvidence, Narrowing,
    PolicyEvidence, Reclaimer, ReclaimerEvidence, Released, Verdict, Wish,
};

fn asked(metadata: &bindery_policy::Metadata) -> AskedPolicy {
    AskedPolicy {
        name: "p".into(),
        module: "recorded".to_owned(),
        settings: "{}".to_owned(),
        claim_facts: metadata.claim_facts.clone(),
        columns: metadata.columns.clone(),
        spread: metadata.spread.clone(),
        reasons: metadata.reasons.iter().map(|reason| reason.name.clone()).collect(),
    }
}

/// A matcher that has judged volumes of these sizes in zone `b`, about a claim for one gibibyte in zone `a`.
fn judged(narrowing: Narrowing, verdicts: &[(u64, Verdict)]) -> PolicyEvidence {
    let count = verdicts.len();
    let rows = Candidates {
        whole: verdicts.iter().map(|(size, _)| gib(*size).whole).collect(),
        nanos: vec![0; count],
        texts: vec!["b".into()],
        columns: vec![vec![1; count]],
        spread: Vec::new(),
    };
    let said = MatcherEvidence {
        policy: asked(SameZone.metadata()),
        claim: ClaimView { request: gib(1), facts: vec![Some("a".into())] },
        narrowing,
        volumes: verdicts.iter().map(|(size, _)| format!("v{size}").into()).collect(),
        rows,
        verdicts: verdicts.iter().map(|(_, verdict)| *verdict).collect(),
    };
    PolicyEvidence { matchers: vec![said], ..PolicyEvidence::default() }
}

fn judges() -> Narrowing {
    Narrowing { judge: true, ..Narrowing::default() }
}

/// A decision that has asked for candidates and has read a volume.
fn decision(read: Volume) -> Evidence {
    let claim: Claim = bindery_kit::claim(ClaimKey::new("ns", "c"));
    let query = Query::of_claim(&claim, AccessModes::default());
    let exchanges = vec![
        Exchange {
            question: Question::Candidates { query, after: None, limit: 8 },
            answer: Answer::Page(Page::default()),
        },
        Exchange {
            question: Question::Volume(Source::Overlay, read.name.clone()),
            answer: Answer::Volume(Lookup::Found(Arc::new(read))),
        },
    ];
    let request = Request { now: 0, subject: Subject::SyncClaim(Arc::new(claim)) };
    Evidence { engine: String::new(), request, exchanges, decision: Decision::done() }
}

/// What the answers of a matcher make of a decision that has given this volume.
fn effect(then: &PolicyEvidence, now: &dyn Matcher, given: Option<&str>) -> Option<Effect> {
    let given: Option<Text> = given.map(Into::into);
    let read = Volume { capacity: Some(gib(3)), ..volume("v3") };
    then.effect(&then.ask_matcher("p", now), &decision(read), given.as_ref())
}

#[test]
fn other_verdicts_reject_the_given_volume_or_choose_another_or_neither() {
    let allowed = Verdict::Allowed(0);
    let twice = AtMostTwice::judging();
    let then = judged(judges(), &[(1, Verdict::Rejected(0)), (2, allowed), (3, allowed)]);
    assert_eq!(effect(&then, &twice, Some("v3")), Some(Effect::Rejected));
    // The smallest is allowed now.
    assert_eq!(effect(&then, &twice, Some("v2")), Some(Effect::Otherwise));
    // What others than the given one are is of no account.
    let then = judged(judges(), &[(1, allowed), (3, allowed)]);
    assert_eq!(effect(&then, &twice, Some("v1")), None);
    // A claim that got none gets one.
    let then = judged(judges(), &[(1, Verdict::Rejected(0))]);
    assert_eq!(effect(&then, &twice, None), Some(Effect::Otherwise));
    let scored = judged(judges(), &[(1, Verdict::Allowed(5)), (2, Verdict::Allowed(4))]);
    assert_eq!(effect(&scored, &Larger { zone: None }, Some("v1")), Some(Effect::Otherwise));
}

#[test]
fn requirements_are_held_against_the_volume_that_the_engine_has_read() {
    let then = judged(Narrowing::default(), &[]);
    let twice = AtMostTwice::narrowing();
    assert_eq!(effect(&then, &twice, Some("v3")), Some(Effect::Rejected));
    assert_eq!(effect(&then, &SameZone, Some("v3")), Some(Effect::Rejected));
    assert_eq!(effect(&then, &twice, Some("unread")), Some(Effect::Unknown));
    assert_eq!(effect(&then, &twice, None), None, "what gets none gets none by more requirements");
    let narrowed = twice.narrow("{}", &then.matchers[0].claim).unwrap();
    let less = judged(Narrowing { at_most: None, ..narrowed.clone() }, &[]);
    assert_eq!(effect(&judged(narrowed, &[]), &AtMostTwice::judging(), Some("v2")), Some(Effect::Unknown));
    assert_eq!(effect(&less, &AtMostTwice::judging(), None), Some(Effect::Unknown));
}

#[test]
fn what_rests_on_more_than_is_recorded_is_not_known() {
    let allowed = Verdict::Allowed(0);
    let then = judged(judges(), &[(1, Verdict::Rejected(0)), (2, allowed)]);
    let twice = AtMostTwice::judging();
    let left_out = PolicyEvidence { volumes_left_out: 1, ..then.clone() };
    let two =
        PolicyEvidence { matchers: [then.matchers.clone(), then.matchers.clone()].concat(), ..then.clone() };
    for unknown in [left_out, two] {
        assert_eq!(effect(&unknown, &twice, Some("v2")), Some(Effect::Unknown));
    }
    // Something else than the order has decided.
    assert_eq!(effect(&then, &twice, Some("other")), Some(Effect::Unknown));
    assert_eq!(effect(&then, &Fails, Some("v2")), Some(Effect::Unknown));
    // A decision that asks for no candidate does not rest on policies.
    let reserved = Evidence { exchanges: Vec::new(), ..decision(volume("v2")) };
    assert_eq!(then.effect(&then.ask_matcher("p", &Fails), &reserved, Some(&"v2".into())), None);
}

/// As in a record that anyone may have written: the parts of the second answer do not fit together.
#[test]
fn given_one_policy_twice_and_once_broken_the_effect_is_unknown() {
    let mut then = judged(judges(), &[(2, Verdict::Allowed(0))]);
    let mut broken = then.matchers[0].clone();
    broken.rows = Candidates::default();
    then.matchers.push(broken);
    assert_eq!(effect(&then, &AtMostTwice::judging(), Some("v2")), Some(Effect::Unknown));
}

/// The number is what the record says, and anyone can write one.
#[test]
fn given_records_that_leave_out_all_volumes_their_sum_has_no_overflow() {
    let left_out = PolicyEvidence { volumes_left_out: usize::MAX, ..judged(judges(), &[]) };
    let mut asked = left_out.ask_again(&Chain::default());
    asked.include(left_out.ask_again(&Chain::default()));
    assert_eq!(asked.not_recorded, usize::MAX);
}

#[test]
fn a_reclaimer_that_keeps_now_changes_the_fate_and_others_may() {
    let reclaimer = keeps_labelled();
    let effect = |then: Wish, label: &str| {
        let facts = vec![Some(label.into())];
        let said = ReclaimerEvidence {
            policy: asked(reclaimer.metadata()),
            volume: "v".into(),
            shown: Released { capacity: gib(1), columns: Vec::new(), claim: Some(facts) },
            judged: Judged { wish: then, reason: 0 },
        };
        let then = PolicyEvidence { matchers: Vec::new(), reclaimers: vec![said], ..judged(judges(), &[]) };
        then.effect(&then.ask_reclaimer("p", &reclaimer), &decision(volume("v")), None)
    };
    assert_eq!(effect(Wish::Keep, "true"), None);
    assert_eq!(effect(Wish::Delete, "true"), Some(Effect::Otherwise));
    assert_eq!(effect(Wish::Keep, "false"), Some(Effect::Unknown));
}
