//! Journals whose digests are right and whose records no writer writes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
mod support;

use std::sync::Arc;

use bindery_core::{Answer, Exchange, Handle, Page, Question, Source, Subject};
use bindery_journal::{Entry, Files, Record, Sink as _, What};
use bindery_policy::{
    AskedPolicy, Candidates, ClaimView, Judged, MatcherEvidence, Narrowing, PolicyEvidence,
    ReclaimerEvidence, Released, Verdict, Wish,
};

use self::support::{folder_writer, rotation, volume, with_policies};

/// Why a journal of this record is not read to its end; the record before it is.
fn refused(record: Record) -> String {
    let folder = tempfile::tempdir().unwrap();
    let entry = |record| Entry { at_ms: 1, what: What::Decision(Box::new(record)) };
    let plain = [entry(with_policies("before")), entry(record)].map(|entry| entry.encode().unwrap());
    let size = 1 << 30;
    folder_writer(folder.path(), rotation(size, 4 * size)).write(&plain.concat()).unwrap();
    let mut files = Files::open(folder.path()).unwrap();
    assert!(files.next().unwrap().is_ok());
    let error = files.next().unwrap().expect_err("the record is refused");
    assert!(files.next().is_none());
    error.source.to_string()
}

fn asked(name: &str) -> AskedPolicy {
    AskedPolicy {
        name: name.into(),
        module: "sha256:0".to_owned(),
        settings: "{}".to_owned(),
        claim_facts: Vec::new(),
        columns: Vec::new(),
        spread: None,
        reasons: vec!["no".into()],
    }
}

/// What a matcher has said of so many volumes.
fn matcher(volumes: usize) -> MatcherEvidence {
    MatcherEvidence {
        policy: asked("zones"),
        claim: ClaimView { request: bindery_kit::gib(1), facts: Vec::new() },
        narrowing: Narrowing { judge: true, ..Narrowing::default() },
        volumes: vec!["v".into(); volumes],
        rows: Candidates { whole: vec![1; volumes], nanos: vec![0; volumes], ..Candidates::default() },
        verdicts: vec![Verdict::Rejected(0); volumes],
    }
}

/// A decision about volume `v`, with policies.
fn with(change: impl FnOnce(&mut PolicyEvidence)) -> Record {
    let mut record = with_policies("v");
    change(record.policies.as_mut().unwrap());
    record
}

#[test]
fn given_a_policy_that_answers_twice_the_decision_and_the_policy_are_told() {
    let why = refused(with(|said| said.matchers = vec![matcher(1); 2]));
    let told = "block 1 has a record that no version of Bindery writes: the decision about \
                persistentvolume v has two answers of matcher \"zones\"";
    assert_eq!(why, told);
}

/// A report names the reason at each volume, so a long one would make a report of any length.
#[test]
fn given_a_long_text_that_reports_repeat_the_decision_is_refused() {
    let long = || "x".repeat(1_025);
    let reason = with(|said| {
        said.matchers = vec![matcher(1)];
        said.matchers[0].policy.reasons = vec![long().into()];
    });
    let module = with(|said| {
        said.matchers = vec![matcher(1)];
        said.matchers[0].policy.module = long();
    });
    let released = with(|said| {
        said.reclaimers = vec![ReclaimerEvidence {
            policy: asked("keep"),
            volume: long().into(),
            shown: Released { capacity: bindery_kit::gib(1), columns: Vec::new(), claim: None },
            judged: Judged { wish: Wish::Keep, reason: 0 },
        }];
    });
    let chain = with(|said| said.chain = long());
    let mut read = with_policies("v");
    read.evidence.exchanges.push(Exchange {
        question: Question::Volume(Source::Cache, "v".into()),
        answer: Answer::Described(Arc::new(volume(&long()))),
    });
    for (record, what) in [
        (reason, "has 1025 bytes as a reason; the limit is 253"),
        (module, "has 1025 bytes as the digest of a module; the limit is 253"),
        (released, "has 1025 bytes as the name of a volume; the limit is 253"),
        (chain, "has a digest of 1025 bytes"),
        (read, "has read a volume with a name of 1025 bytes"),
    ] {
        let why = refused(record);
        assert!(why.ends_with(&format!(": the decision about persistentvolume v {what}")), "{why}");
    }
    let mut object = with_policies("v");
    object.evidence.request.subject = Subject::SyncVolume(Arc::new(volume(&long())));
    let why = refused(object);
    assert!(why.contains("the name of the object of a decision has ") && why.len() < 200, "{why}");
}

#[test]
fn given_more_volumes_than_a_decision_rests_on_it_is_refused() {
    let why = refused(with(|said| said.matchers = vec![matcher(4_097)]));
    assert!(why.ends_with("has 4097 volumes of policy \"zones\"; the limit is 4096"), "{why}");
    let mut shown = with_policies("v");
    let handles = vec![Handle(0); (1 << 20) + 1];
    shown.evidence.exchanges.push(Exchange {
        question: Question::DefaultClasses,
        answer: Answer::Page(Page { handles, ..Page::default() }),
    });
    let why = refused(shown);
    assert!(why.ends_with("was shown 1048577 volumes"), "{why}");
}
