//! Journals of format 1 are read, changes in them are found, and records replay.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
mod support;

use bindery_core::{Cluster, Decision, Engine, GuardVerdict, Lookup, Request};
use bindery_journal::{Place, ReadError, Reader, Record, Replayed, What, replay};
use bindery_kit::Scripted;
use sha2::{Digest, Sha256};

use self::support::{record, with_policies};

/// Asks for one class and decides nothing.
fn asking(name: &'static str) -> impl Engine {
    Scripted(move |_: &Request, cluster: &mut dyn Cluster| {
        let mut decision = Decision::done();
        if let Lookup::Found(class) = cluster.class(name.into())? {
            decision.requeue_after_ms = Some(u64::from(class.default));
        }
        Ok(decision)
    })
}

fn journal(names: &[&str]) -> Vec<u8> {
    journal_of(&names.iter().map(|name| record(name)).collect::<Vec<_>>())
}

/// A journal as versions before format 2 have written it.
fn journal_of(records: &[Record]) -> Vec<u8> {
    let (mut bytes, mut chain) = (b"bindery-journal1".to_vec(), vec![0; 32]);
    for record in records {
        let refused = match &record.guard {
            GuardVerdict::Passed => None,
            GuardVerdict::Refused(why) | GuardVerdict::Unproven(why) | GuardVerdict::Stale(why) => Some(why),
        };
        let mut payload = postcard::to_stdvec(&(&record.evidence, refused)).unwrap();
        if let Some(it) = &record.policies {
            let policies =
                (&it.chain, &it.matchers, it.volumes_left_out, &it.unscored, &it.reclaimers, &it.skipped);
            payload = postcard::to_extend(&policies, payload).unwrap();
        }
        chain = Sha256::new().chain_update(&chain).chain_update(&payload).finalize().to_vec();
        bytes.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
        bytes.extend(&chain);
        bytes.extend(&payload);
    }
    bytes
}

/// Reads records until an error.
fn records(bytes: &[u8]) -> Result<Vec<Record>, ReadError> {
    let read = Reader::open(bytes)?.map(|entry| match entry?.what {
        What::Decision(record) => Ok(*record),
        other => panic!("{other:?}"),
    });
    read.collect()
}

/// Reads a whole journal; returns its number of records and its digest.
fn read(bytes: &[u8]) -> (usize, String) {
    let mut reader = Reader::open(bytes).unwrap();
    let records = reader.by_ref().map(Result::unwrap).count();
    (records, reader.digest().to_string())
}

#[test]
fn records_are_read_as_written() {
    let refused = Record { guard: GuardVerdict::Refused("why".to_owned()), ..record("c") };
    let written = [record("a"), with_policies("b"), refused];
    assert_eq!(records(&journal_of(&written)).unwrap(), written);
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
        assert!(records(&bytes).is_err(), "byte {position}");
    }
}

#[test]
fn swapped_records_are_found() {
    let (one, two) = (journal(&["a"]), journal(&["a", "b"]));
    let swapped = [&two[..16], &two[one.len()..], &one[16..]].concat();
    let first = Reader::open(swapped.as_slice()).unwrap().next().unwrap();
    assert!(matches!(first, Err(ReadError::Broken(Place::Record(1)))));
}

#[test]
fn records_before_an_unfinished_one_are_readable() {
    let (one, two) = (journal(&["a"]), journal(&["a", "b"]));
    for length in one.len() + 1..two.len() {
        let mut reader = Reader::open(&two[..length]).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().what, What::Decision(Box::new(record("a"))));
        let next = reader.next();
        assert!(matches!(next, Some(Err(ReadError::Unfinished(Place::Record(2))))), "{length}");
    }
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
    let told = matches!(error, ReadError::Joined { after: Place::Record(2), offset: at } if at == offset);
    assert!(told, "{error}");
}

#[test]
fn another_file_is_not_a_journal() {
    for bytes in [b"bindery".as_slice(), b"bindery-journal3", b"something else"] {
        let opened = Reader::open(bytes);
        assert!(matches!(opened, Err(ReadError::NotAJournal | ReadError::Unfinished(_))), "{bytes:?}");
    }
}

#[test]
fn a_question_that_was_not_recorded_is_not_replayable() {
    assert!(matches!(replay(&record("a"), &asking("gold")), (Replayed::Same, None)));
    assert!(matches!(replay(&record("a"), &asking("silver")), (Replayed::NotReplayable(_), None)));
    let mut other = record("a");
    other.evidence.decision.requeue_after_ms = None;
    assert!(matches!(replay(&other, &asking("gold")), (Replayed::Different(_), None)));
}
