//! Records are read as written, changes are found, and records replay.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bindery_core::{
    Answer, BindingMode, Class, Cluster, Decision, Engine, EngineFault, Evidence, Exchange, Lookup, Outcome,
    Question, Request, Subject, Volume,
};
use bindery_journal::{ReadError, Reader, Record, Replayed, Writer, replay};
use bindery_policy::{PolicyEvidence, Skipped, Unscored};

/// Asks for one class and decides nothing.
struct Asking(&'static str);

impl Engine for Asking {
    fn decide(&self, _: &Request, cluster: &mut dyn Cluster) -> Result<Decision, EngineFault> {
        let mut decision = Decision::done();
        if let Lookup::Found(class) = cluster.class(self.0.into())? {
            decision.requeue_after_ms = Some(u64::from(class.default));
        }
        Ok(decision)
    }

    fn digest(&self) -> &str {
        "asking"
    }
}

fn volume(name: &str) -> Volume {
    Volume {
        uid: name.into(),
        labels: std::iter::once(("zone".into(), "a".into())).collect(),
        capacity: None,
        access_modes: Vec::new(),
        class: "gold".into(),
        source: "nfs".into(),
        ..bindery_kit::volume(name)
    }
}

fn record(name: &str) -> Record {
    let class = bindery_kit::class("gold", "vendor.example/disk", Some(BindingMode::Immediate));
    let class = Class { default: true, created: 7, ..class };
    let exchanges = vec![Exchange {
        question: Question::Class("gold".into()),
        answer: Answer::Class(Lookup::Found(Arc::new(class))),
    }];
    let mut decision = Decision::new(Vec::new(), Outcome::Done);
    decision.requeue_after_ms = Some(1);
    let request = Request { now: 1_700_000_000, subject: Subject::SyncVolume(Arc::new(volume(name))) };
    let evidence = Evidence { engine: "asking".to_owned(), request, exchanges, decision };
    Record { evidence, refused: None, policies: None }
}

/// A record of a decision that a policy was skipped for.
fn with_policies(name: &str) -> Record {
    let skipped = vec![Skipped { policy: "zone".into(), why: "it trapped".to_owned() }];
    let (chain, matchers, reclaimers) = ("sha256:0".to_owned(), Vec::new(), Vec::new());
    let unscored = Some(Unscored { policy: "wear".into(), max: 2 });
    let policies = PolicyEvidence { chain, matchers, volumes_left_out: 7, unscored, reclaimers, skipped };
    Record { policies: Some(policies), ..record(name) }
}

fn journal(names: &[&str]) -> Vec<u8> {
    journal_of(&names.iter().map(|name| record(name)).collect::<Vec<_>>())
}

fn journal_of(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::create(&mut bytes).unwrap();
    records.iter().for_each(|record| writer.append(record).unwrap());
    bytes
}

#[test]
fn records_are_read_as_written() {
    let written = [record("a"), with_policies("b"), record("c")];
    let bytes = journal_of(&written);
    let records: Vec<Record> = Reader::open(bytes.as_slice()).unwrap().map(Result::unwrap).collect();
    assert_eq!(records, written);
}

/// The digest that this journal had before records could have what policies said.
#[test]
fn a_record_without_policies_is_as_it_was_before_there_were_policies() {
    assert_eq!(
        read(&journal(&["a", "b"])).1,
        "fea71d77fd241860e9eac837872eeeb552d2ad528b4c2095c0d4e4eecc29b5a8"
    );
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let whole = journal(&["a"]);
    for position in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[position] ^= 1;
        let read = Reader::open(bytes.as_slice()).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        assert!(read.is_err(), "byte {position}");
    }
}

#[test]
fn swapped_records_are_found() {
    let (one, two) = (journal(&["a"]), journal(&["a", "b"]));
    let swapped = [&two[..16], &two[one.len()..], &one[16..]].concat();
    let first = Reader::open(swapped.as_slice()).unwrap().next().unwrap();
    assert!(matches!(first, Err(ReadError::Broken { number: 1 })));
}

#[test]
fn records_before_an_unfinished_one_are_readable() {
    let (one, two) = (journal(&["a"]), journal(&["a", "b"]));
    for length in one.len() + 1..two.len() {
        let mut reader = Reader::open(&two[..length]).unwrap();
        assert_eq!(reader.next().unwrap().unwrap(), record("a"));
        assert!(matches!(reader.next(), Some(Err(ReadError::Unfinished { number: 2 }))), "{length}");
    }
}

/// Reads a whole journal; returns its number of records and its digest.
fn read(bytes: &[u8]) -> (usize, String) {
    let mut reader = Reader::open(bytes).unwrap();
    let records = reader.by_ref().map(Result::unwrap).count();
    (records, reader.digest())
}

#[test]
fn only_the_digest_shows_records_cut_off_at_the_end() {
    let (two, three) = (journal(&["a", "b"]), journal(&["a", "b", "c"]));
    let cut = &three[..two.len()];
    assert_eq!(read(cut), read(&two));
    assert_eq!(read(cut).0, 2);
    let digests = [read(&journal(&[])).1, read(cut).1, read(&three).1];
    assert!(digests[0] != digests[1] && digests[1] != digests[2], "{digests:?}");
    assert!(digests.iter().all(|digest| digest.len() == 64));
}

#[test]
fn the_place_where_another_journal_begins_is_told() {
    let (first, second) = (journal(&["a", "b"]), journal(&["c"]));
    let joined = [&first[..], &second].concat();
    let error = Reader::open(&joined[..]).unwrap().find_map(Result::err).unwrap();
    let offset = first.len() as u64;
    assert!(matches!(error, ReadError::Joined { after: 2, offset: at } if at == offset), "{error}");
}

#[test]
fn another_file_is_not_a_journal() {
    for bytes in [b"bindery".as_slice(), b"bindery-journal2"] {
        assert!(matches!(Reader::open(bytes), Err(ReadError::NotAJournal)));
    }
}

#[test]
fn a_question_that_was_not_recorded_is_not_replayable() {
    assert!(matches!(replay(&record("a"), &Asking("gold")), Replayed::Same));
    assert!(matches!(replay(&record("a"), &Asking("silver")), Replayed::NotReplayable));
    let mut other = record("a");
    other.evidence.decision.requeue_after_ms = None;
    assert!(matches!(replay(&other, &Asking("gold")), Replayed::Different(_)));
}
