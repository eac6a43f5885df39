//! Golden cases of what a journal has recorded of a policy.
//!
//! A case has manifests, and a journal has facts: the manifests are made so that the same facts are read from
//! them. What no manifest says becomes no case.

mod manifests;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use bindery_core::{Key, Subject, Text, is_dns_label};
use bindery_journal::Record;
use bindery_policy::{
    self as policy, AskedPolicy, Candidates, MatcherEvidence, Metadata, ReclaimerEvidence, Wish, candidates,
    volume_read,
};
use bindery_registry::Digest;
use bindery_registry::limits::EXTRA_MAX;
use serde_json::Value;

use self::manifests::Manifests;
use super::cases::{CaseAnswer, CaseVerdict};
use super::judge::{ROWS_MAX, chosen};
use super::shown::{Shown, released};
use crate::journal::subject::time;
use crate::output::counted;

/// Writes cases into files that an artifact can have.
pub(super) struct Golden {
    folder: PathBuf,
    /// The policy in the journal.
    name: String,
    /// The cases that are written: decisions about the same ask the same.
    known: BTreeSet<Digest>,
    /// The cases of the next file.
    text: String,
    files: usize,
    /// Answers that no case can have.
    left_out: usize,
}

impl Golden {
    pub(super) fn new(folder: &Path, name: &str) -> Result<Self> {
        if !is_dns_label(name) {
            bail!("--named {name:?} is no name of a policy; name one that the journal has");
        }
        let (folder, name, known) = (folder.to_owned(), name.to_owned(), BTreeSet::new());
        Ok(Self { folder, name, known, text: String::new(), files: 0, left_out: 0 })
    }

    /// Adds what a record has of the policy, which declares what the module declares.
    pub(super) fn add(&mut self, record: &Record, at_ms: u64, metadata: &Metadata) -> Result<()> {
        let Some(recorded) = &record.policies else { return Ok(()) };
        let name = self.name.clone();
        let title = format!("{} is decided as at {}", record.evidence.request.subject.key(), time(at_ms));
        for said in recorded.matchers.iter().filter(|said| *said.policy.name == *name) {
            let judged = Judged::new(record, said, metadata);
            let count = judged.volumes.len();
            for from in (0..count.max(1)).step_by(ROWS_MAX) {
                self.write(&title, judged.case(metadata, from..count.min(from + ROWS_MAX)))?;
            }
        }
        for said in recorded.reclaimers.iter().filter(|said| *said.policy.name == *name) {
            self.write(&title, reclaimed(record, said, metadata))?;
        }
        Ok(())
    }

    fn write(&mut self, title: &str, case: Result<String>) -> Result<()> {
        let text = case.ok().map(|case| (Digest::of(case.as_bytes()), titled(title, &case)));
        let Some((digest, text)) = text.filter(|(_, text)| text.len() <= EXTRA_MAX) else {
            self.left_out += 1;
            return Ok(());
        };
        if self.known.insert(digest) {
            if self.text.len() + text.len() > EXTRA_MAX {
                self.end_file()?;
            }
            self.text += &text;
        }
        Ok(())
    }

    fn end_file(&mut self) -> Result<()> {
        self.files += 1;
        let path = self.folder.join(format!("{}-{}.yaml", self.name, self.files));
        let write = || {
            fs::create_dir_all(&self.folder)?;
            fs::File::create_new(&path)?.write_all(self.text.as_bytes())
        };
        write().with_context(|| {
            format!("{} cannot be written; remove what is there, or name another folder", path.display())
        })?;
        self.text.clear();
        Ok(())
    }

    /// Writes the last file; returns what was done.
    pub(super) fn finish(mut self) -> Result<String> {
        if !self.text.is_empty() {
            self.end_file()?;
        }
        let Self { folder, known, left_out, files, .. } = self;
        let cases = counted(known.len(), "case is", "cases are");
        let files = counted(files, "file", "files");
        let written = format!("{cases} written into {files} of {}\n", folder.display());
        let answers = counted(left_out, "answer has no case", "answers have no case");
        Ok(match left_out {
            0 => written,
            _ => format!(
                "{written}{answers}: no volume with its facts is recorded, or no manifest says what the \
                 policy was shown\n"
            ),
        })
    }
}

fn titled(title: &str, case: &str) -> String {
    format!("---\ncase: {}\n{case}", Value::from(title))
}

/// A case without its first line.
fn untitled(case: String) -> Result<String> {
    let (_, rest) = case.split_once('\n').context("the case is empty")?;
    Ok(rest.to_owned())
}

/// What a matcher has said of volumes.
struct Judged<'a> {
    record: &'a Record,
    said: &'a MatcherEvidence,
    volumes: Vec<Text>,
    rows: Candidates,
    verdicts: Vec<policy::Verdict>,
}

impl<'a> Judged<'a> {
    /// The rows that the matcher has judged. If it judges none, the volume that the claim was given.
    fn new(record: &'a Record, said: &'a MatcherEvidence, metadata: &Metadata) -> Self {
        let MatcherEvidence { volumes, rows, verdicts, narrowing, .. } = said;
        let given = record.evidence.decision.chosen().filter(|_| !narrowing.judge);
        let Some(given) = given.and_then(|name| volume_read(&record.evidence, name)) else {
            let (volumes, rows, verdicts) = (volumes.clone(), rows.clone(), verdicts.clone());
            return Self { record, said, volumes, rows, verdicts };
        };
        let verdict = match narrowing.rejection(metadata, given) {
            Some(reason) => policy::Verdict::Rejected(reason),
            None => policy::Verdict::Allowed(0),
        };
        let spread = metadata.spread.iter().map(|_| 0).collect();
        let rows = candidates(metadata, &[Arc::clone(given)], spread);
        Self { record, said, volumes: vec![given.name.clone()], rows, verdicts: vec![verdict] }
    }

    /// The case of some of the rows, without its title.
    fn case(&self, metadata: &Metadata, range: Range<usize>) -> Result<String> {
        let Self { record, said, volumes, verdicts, .. } = self;
        let Key::Claim(key) = record.evidence.request.subject.key() else { bail!("it decides no claim") };
        ensure!(said.is_whole() && !range.is_empty() && declares(metadata, &said.policy), "it has no rows");
        let (rows, volumes) = (self.rows.rows(range.clone()), &volumes[range.clone()]);
        let mut manifests = Manifests::default();
        manifests.claim(&key, &said.policy.claim_facts, &said.claim.facts, Some(said.claim.request));
        manifests.volumes(volumes, &rows, &said.policy)?;
        let file = manifests.file(&said.policy.settings)?;
        let shown = Shown::new(metadata, &file.cases[0].1)?;
        let counted = shown.volumes.iter().filter_map(|volume| Some(shown.counted.as_ref()?.count(volume)));
        let read = candidates(metadata, &shown.volumes, counted.collect());
        ensure!(shown.claim == said.claim && read == rows, "no manifest says what it was shown");
        let verdict = |verdict: &policy::Verdict| match verdict {
            policy::Verdict::Allowed(score) if metadata.scores => Ok(CaseVerdict::Score(*score)),
            policy::Verdict::Allowed(_) => Ok(CaseVerdict::Allowed),
            policy::Verdict::Rejected(reason) => reason_of(&said.policy, *reason).map(CaseVerdict::Rejected),
        };
        let verdicts =
            volumes.iter().zip(&verdicts[range]).map(|(name, it)| Ok((name.to_string(), verdict(it)?)));
        let volumes = verdicts.collect::<Result<_>>()?;
        let chosen = chosen(&shown.volumes, &volumes);
        untitled(file.updated(&[CaseAnswer::Judged { chosen, volumes }])?)
    }
}

/// The case of what a reclaimer has said of a volume, without its title.
fn reclaimed(record: &Record, said: &ReclaimerEvidence, metadata: &Metadata) -> Result<String> {
    let ReclaimerEvidence { policy, volume, shown, judged } = said;
    ensure!(said.is_whole() && declares(metadata, policy), "it was shown something else");
    let Subject::SyncVolume(subject) = &record.evidence.request.subject else {
        bail!("it decides no volume")
    };
    let mut manifests = Manifests::default();
    if let (Some(facts), Some(of)) = (&shown.claim, &subject.claim_ref) {
        manifests.claim(&of.claim_key(), &policy.claim_facts, facts, None);
    }
    let facts = policy.columns.iter().zip(&shown.columns);
    manifests.volume = manifests::volume(volume, shown.capacity, facts);
    let file = manifests.file(&policy.settings)?;
    ensure!(released(metadata, &file.cases[0].1)? == *shown, "no manifest says what it was shown");
    let reason = match judged.wish {
        Wish::ByPolicy => None,
        _ => Some(reason_of(policy, judged.reason)?),
    };
    untitled(file.updated(&[CaseAnswer::Reclaimed { fate: judged.wish, reason }])?)
}

/// Whether the module is shown what the policy was shown.
fn declares(metadata: &Metadata, policy: &AskedPolicy) -> bool {
    (&metadata.claim_facts, &metadata.columns, &metadata.spread)
        == (&policy.claim_facts, &policy.columns, &policy.spread)
}

fn reason_of(policy: &AskedPolicy, place: u32) -> Result<String> {
    let reason = policy.reasons.get(place as usize).context("its reason is not declared")?;
    Ok(reason.to_string())
}
