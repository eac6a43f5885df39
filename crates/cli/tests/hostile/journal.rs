//! Journals of a later version, and journals that anyone may have written, in the commands that read them.

use std::sync::Arc;
use std::time::Duration;

use bindery_core::{Decision, Evidence, GuardVerdict, Request, Subject};
use bindery_journal::{Entry, FolderWriter, Gap, Header, Record, Rotation, Sink as _, What};
use bindery_kit::module::Module;
use serde_json::{Value, json};

use super::support::{Ended, Home};

/// Arguments of `bindery explain` that find the decision about volume `v`.
const EXPLAIN: [&str; 7] = ["explain", "pv", "v", "--journal", "journal", "--at", "2100-01-01T00:00:00Z"];

/// A writer of Bindery 9.9.9 into the folder `journal` of a home.
fn writer(home: &Home) -> FolderWriter {
    let header = Header { version: "9.9.9".to_owned(), ..Header::default() };
    let rotation = Rotation { size: 1 << 30, age: Duration::from_secs(3_600), keep: 1 << 32 };
    FolderWriter::new(&home.path().join("journal"), rotation, header)
}

/// A home with a journal of these entries, which Bindery 9.9.9 has written.
fn home(entries: &[Vec<u8>]) -> Home {
    let home = Home::new();
    let mut writer = writer(&home);
    writer.write(&entries.concat()).unwrap();
    writer.end().unwrap();
    home
}

fn encoded(what: What) -> Vec<u8> {
    Entry { at_ms: 1, what }.encode().unwrap()
}

/// A record of a kind that no version has yet.
fn unknown() -> Vec<u8> {
    let mut bytes = encoded(What::End);
    bytes[0] = 200;
    bytes
}

/// A decision about volume `v`, which does nothing.
fn decision() -> Vec<u8> {
    let request = Request { now: 0, subject: Subject::SyncVolume(Arc::new(bindery_kit::volume("v"))) };
    let engine = "native".to_owned();
    let evidence = Evidence { engine, request, exchanges: Vec::new(), decision: Decision::done() };
    let (reads, redacted) = Default::default();
    let guard = GuardVerdict::Passed;
    let record = Record { evidence, guard, chain: None, policies: None, fuel: None, reads, redacted };
    encoded(What::Decision(Box::new(record)))
}

/// The report of a command as JSON.
fn report(home: &Home, arguments: &[&str]) -> Value {
    let ended = home.bindery(&[arguments, &["-o", "json"]].concat());
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

fn told(remedy: &str, records: u32) -> String {
    let passed_over = match records {
        1 => "record is of a kind that this version does not know, and was passed over",
        _ => "records are of kinds that this version does not know, and were passed over",
    };
    format!("{records} {passed_over}: {remedy} with Bindery 9.9.9, which wrote the journal\n")
}

#[test]
fn given_records_of_unknown_kinds_replay_counts_them_and_fails() {
    let home = home(&[unknown(), unknown()]);
    let Ended { status, stdout, stderr } = home.bindery(&["replay", "journal"]);
    assert_eq!((status, &*stderr), (1, ""), "{stdout}");
    assert!(stdout.starts_with(&told("replay", 2)), "{stdout}");
    let report = report(&home, &["replay", "journal"]);
    assert_eq!((&report["unknown"], &report["records"]), (&json!({"9.9.9": 2}), &json!(0)), "{report}");
}

#[test]
fn given_records_of_unknown_kinds_explain_tells_of_them() {
    let home_of_both = home(&[decision(), unknown()]);
    let ended = home_of_both.bindery(&EXPLAIN);
    assert!(ended.status == 0 && ended.stdout.ends_with(&told("explain it", 1)), "{ended:?}");
    assert_eq!(report(&home_of_both, &EXPLAIN)["unknown"], json!({"9.9.9": 1}));
    // The decision may be among them.
    let ended = home(&[unknown()]).bindery(&EXPLAIN);
    assert!(ended.status == 2 && ended.stderr.starts_with(&told("explain it", 1)), "{ended:?}");
}

#[test]
fn given_records_of_unknown_kinds_a_test_of_a_policy_tells_of_them() {
    let home = home(&[unknown()]);
    home.file("p.wasm", Module::default().component());
    let ended = home.bindery(&["policy", "test", "p.wasm", "--from", "journal", "--named", "p"]);
    assert_eq!((ended.status, ended.stdout), (2, told("test", 1)), "{}", ended.stderr);
}

#[test]
fn given_records_of_unknown_kinds_a_diff_tells_of_them() {
    let ended = home(&[unknown()]).bindery(&["diff", "--journal", "journal"]);
    assert_eq!((ended.status, ended.stderr), (0, told("read the differences", 1)), "{}", ended.stdout);
}

#[test]
fn given_journals_of_two_replicas_replay_tells_the_digest_of_each() {
    let home = Home::new();
    let mut writers = [writer(&home), writer(&home)];
    for (writer, block) in writers.iter_mut().zip([decision(), unknown()]) {
        writer.write(&block).unwrap();
    }
    let verified = report(&home, &["journal", "verify", "journal"]);
    let digests = [0_usize, 1].map(|journal| verified[journal]["digest"].as_str().unwrap());
    assert_ne!(digests[0], digests[1]);
    let expected = json!({"replica-1": digests[0], "replica-2": digests[1]});
    assert_eq!(report(&home, &["replay", "journal"])["digests"], expected);
    let [one, two] = digests;
    let told = format!("digest of the last of replica-1: {one}\ndigest of the last of replica-2: {two}\n");
    let ended = home.bindery(&["replay", "journal"]);
    assert!(ended.stdout.ends_with(&told), "{ended:?}");
}

/// A gap says how many records are lost, and anyone can write one.
#[test]
fn given_gaps_of_more_records_than_can_be_counted_no_sum_overflows() {
    let gap = || encoded(What::Gap(Gap { lost: u64::MAX, from_ms: 0, to_ms: u64::MAX }));
    let home = home(&[decision(), gap(), gap()]);
    let most = json!(u64::MAX);
    assert_eq!(report(&home, &["replay", "journal"])["missing"], most);
    assert_eq!(report(&home, &EXPLAIN)["missing"], most);
    assert_eq!(report(&home, &["journal", "verify", "journal"])[0]["lost"], most);
}
