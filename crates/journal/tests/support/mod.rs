//! Records and journals for tests.

#![allow(dead_code, reason = "every test file uses its part")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bindery_core::{
    Answer, BindingMode, ClaimKey, Class, Decision, Evidence, Exchange, GuardRead, GuardVerdict, Key, Lookup,
    Outcome, Question, Request, Subject, Volume,
};
use bindery_journal::{Entry, FolderWriter, Header, Record, Rotation, What};
use bindery_policy::{PolicyEvidence, Skipped, Unscored};

pub(crate) fn volume(name: &str) -> Volume {
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

pub(crate) fn record(name: &str) -> Record {
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
    let (reads, redacted) = Default::default();
    let guard = GuardVerdict::Passed;
    Record { evidence, guard, chain: None, policies: None, fuel: None, reads, redacted }
}

/// A record of a decision that a policy was skipped for.
pub(crate) fn with_policies(name: &str) -> Record {
    let skipped = vec![Skipped { policy: "zone".into(), why: "it trapped".to_owned() }];
    let (chain, matchers, reclaimers) = ("sha256:0".to_owned(), Vec::new(), Vec::new());
    let unscored = Some(Unscored { policy: "wear".into(), max: 2 });
    let policies = PolicyEvidence {
        chain: chain.clone(),
        matchers,
        volumes_left_out: 7,
        unscored,
        reclaimers,
        skipped,
        calls: Vec::new(),
    };
    Record { policies: Some(policies), chain: Some(chain), ..record(name) }
}

/// An entry about a decision of a volume.
pub(crate) fn entry(name: &str) -> Entry {
    let found = [Ok(Some(("u".into(), "7".into()))), Ok(None), Err("no answer".to_owned())];
    let key = || Key::Claim(ClaimKey::new("ns", "c"));
    let reads = found.map(|found| GuardRead { key: key(), found }).into();
    let record = Record { reads, ..with_policies(name) };
    Entry { at_ms: 1_700_000_000_001, what: What::Decision(Box::new(record)) }
}

/// Files are ended after each block that makes them larger than this.
pub(crate) fn rotation(size: u64, keep: u64) -> Rotation {
    Rotation { size, age: Duration::from_secs(3_600), keep }
}

/// A writer into a folder.
pub(crate) fn folder_writer(folder: &Path, rotation: Rotation) -> FolderWriter {
    FolderWriter::new(folder, rotation, Header { replica: "a".to_owned(), ..Header::default() })
}
