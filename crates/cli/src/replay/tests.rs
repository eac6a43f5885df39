//! What a replay keeps in memory of a journal that anyone may have written.

use std::sync::Arc;

use bindery_core::{Decision, Evidence, GuardVerdict, Request, Subject};
use bindery_policy::{AskedAgain, PolicyEvidence};

use super::*;
use crate::journal::kept::KEPT_MAX;
use crate::tests::arguments_of;

fn record() -> Record {
    let request = Request { now: 0, subject: Subject::SyncVolume(Arc::new(bindery_kit::volume("v"))) };
    let engine = "another".to_owned();
    let evidence = Evidence { engine, request, exchanges: Vec::new(), decision: Decision::done() };
    let (reads, redacted) = Default::default();
    let (guard, policies) = (GuardVerdict::Passed, Some(PolicyEvidence::default()));
    Record { evidence, guard, chain: None, policies, fuel: None, reads, redacted }
}

#[test]
fn given_a_full_report_a_record_of_another_engine_is_an_error() {
    let mut deciders = Deciders::new(&arguments_of(&["journal", "--engine", "native"])).unwrap();
    let mut report = Report { kept: KEPT_MAX, ..Report::default() };
    assert!(report.check_kept().is_ok());
    report.add(&record(), &mut deciders, false);
    let error = report.check_kept().unwrap_err().to_string();
    assert!(error.starts_with("record 1: the report of the journal "), "{error}");
    // A name is kept once.
    let kept = report.kept;
    report.add(&record(), &mut deciders, false);
    assert_eq!(report.kept, kept);
}

#[test]
fn given_notes_and_numbers_without_bound_answers_are_counted_within() {
    let mut answers = Answers::default();
    let asked = |_: &PolicyEvidence| {
        let mut asked = AskedAgain::default();
        asked.notes.push("a note".to_owned());
        asked.not_recorded = usize::MAX;
        asked
    };
    for number in 1..=2 {
        answers.ask(number, &record(), true, asked);
    }
    assert_eq!(answers.kept, "a note".len());
    assert!(answers.summary().contains(&format!(" {} not recorded\n", usize::MAX)));
}

#[test]
fn given_one_record_a_report_speaks_of_one() {
    let report = Report { records: 1, missing: 1, digest: "d".to_owned(), ..Report::default() };
    let told = "1 record was lost before it could be written\n\
                1 record: 0 the same, 0 different, 0 not replayable, 0 not decided\n\
                digest of the last: d\n";
    assert_eq!(report.summary(), told);
}
