//! `bindery replay`: decides the records of a journal again, from their evidence alone, and asks the policies
//! again.

pub(crate) mod answers;
pub(crate) mod change;
mod deciders;
mod modules;
#[cfg(test)]
mod tests;
mod with;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use bindery_host::FUEL_SCHEDULE;
use bindery_journal::{Ending, Files, Header, Record, Replayed, What, replay};
use serde::Serialize;

use self::answers::Answers;
use self::change::change;
use self::deciders::Deciders;
use self::modules::Modules;
use self::with::{With, WithArguments};
use crate::engine::EngineArguments;
use crate::journal::kept::check_kept;
use crate::journal::unknown::Unknown;
use crate::output::{self, Format, counted};
use crate::policies::PolicyArguments;
use crate::policy::registry::RegistryArguments;

/// Decide the records of a journal again, and list the records that the engine decides differently.
///
/// A record is a decision; other entries of the journal are left out. The same engine must also use the same
/// fuel, where fuel was counted the same way, and so must each call of the same policy.
///
/// No policy is needed: a record has the answers of the policies that the decision rests on. With `--policy`
/// the policies are asked again too, with what they were shown then, and each answer that is another one is
/// listed. With `--modules` or `--engine-cache` engines and policies are found by their digests. With
/// `--with` another engine or policy stands in for the recorded one. Where other policies are asked, the
/// decisions are counted that their answers would change.
///
/// Exits with status 1 when a record is decided differently or not at all, or a policy answers otherwise, and
/// with 2 when the journal cannot be read to its end; the records before the damage are decided all the same.
/// A record whose replay asks a question that has no recorded answer, or that is decided otherwise with
/// digests in place of what is redacted, is not replayable: it is counted, and is not a difference. Nor is an
/// answer of a policy that is not loaded. Records of kinds that only a later version knows are counted, and
/// the status is 1, because they may be decisions; with `--with` it is 0. The digest at the end covers all
/// records of a replica, and a folder of several replicas has one for each: keep them elsewhere to find out
/// later whether records were cut off.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A folder or a file of a journal, as `bindery serve --journal` or `bindery playground --journal` writes
    /// it.
    journal: PathBuf,
    /// Format of the result.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    #[command(flatten)]
    with: WithArguments,
    /// Find the engine and the policies of each record by their digests among the files of this folder, in an
    /// OCI layout there, or in this repository of a registry, and ask those policies again. Repeat it for
    /// several places. Modules that a replica has fetched are found in its `--engine-cache` too. What is not
    /// found is named; then `--engine` and `--policy` stand in.
    #[arg(long, value_name = "FOLDER|oci://HOST/REPOSITORY")]
    modules: Vec<PathBuf>,
    #[command(flatten)]
    registry: RegistryArguments,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    policies: PolicyArguments,
}

/// The result of a replay.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    records: usize,
    same: usize,
    different: usize,
    not_replayable: usize,
    not_decided: usize,
    /// Number of records by how they are decided differently.
    changes: BTreeMap<&'static str, usize>,
    /// Records whose fuel was compared.
    fuel_compared: usize,
    /// Number of records by the digest of the engine that decided them.
    engines: BTreeMap<String, usize>,
    /// Records for which the engine was shown digests in place of what is redacted.
    redacted: usize,
    /// Records that gaps of the journal tell of.
    missing: u64,
    /// Records of kinds that this version does not know, by the version that wrote them.
    unknown: Unknown,
    /// The modules that are not found, as sentences.
    missing_modules: Vec<String>,
    /// The records that are not decided the same.
    decisions: Vec<Redecided>,
    /// Number of records that rest on policies, by the digest of the policies.
    policies: BTreeMap<String, usize>,
    /// What the loaded policies answer; `None` if none is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_again: Option<Answers>,
    /// Whether the journal ends inside a block: it is being written, or its writer was killed there.
    torn: bool,
    /// Digest of the last record or block, of the last journal in the folder.
    digest: String,
    /// The same of each journal in the folder, by its name.
    digests: BTreeMap<String, String>,
    /// About how many bytes of the journal are kept, without those of `asked_again`.
    #[serde(skip)]
    kept: usize,
}

/// A record that is not decided the same.
#[derive(Serialize)]
struct Redecided {
    /// Its number, from 1.
    record: usize,
    subject: String,
    /// What its replay shows, as a sentence.
    what: String,
    /// The decisions, where the engine decides differently.
    #[serde(flatten)]
    decisions: Option<ThenNow>,
}

#[derive(Serialize)]
struct ThenNow {
    then: String,
    now: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut deciders = Deciders::new(arguments)?;
    let mut report = Report { asked_again: deciders.answers(), ..Report::default() };
    let mut files = Files::open(&arguments.journal)?;
    let mut broken = None;
    while let Some(entry) = files.next() {
        match entry.map(|entry| entry.what) {
            Ok(What::Decision(record)) => {
                let counts_alike = files.header().is_some_and(|header| header.fuel_schedule == FUEL_SCHEDULE);
                let text = report.add(&record, &mut deciders, counts_alike);
                if matches!(arguments.output, Format::Table) {
                    output::print(&text)?;
                    report.forget_differences();
                } else {
                    report.kept += text.len();
                }
                report.check_kept()?;
            }
            Ok(what) => report.pass_over(&what, files.header()),
            // The complete records of the files after it are replayed all the same.
            Err(error) => _ = broken.get_or_insert(error),
        }
    }
    (report.digest, report.torn) = (files.digest().to_string(), files.ending() == Ending::Torn);
    let digests = files.digests().iter().map(|(journal, digest)| (journal.clone(), digest.to_string()));
    report.digests = digests.collect();
    arguments.output.print(&report, |out| out.write_all(report.summary().as_bytes()))?;
    if let Some(error) = broken {
        return Err(error.into());
    }
    if let (Some(With::Policy(name, _)), Some(answers)) = (&deciders.with, &report.asked_again) {
        answers.check_asked(&arguments.journal, name)?;
    }
    Ok(if report.is_same() || deciders.with.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Report {
    /// Decides a record again and counts it; returns the lines to print. `counts_alike` says whether its fuel
    /// was counted as this program counts.
    fn add(&mut self, record: &Record, deciders: &mut Deciders, counts_alike: bool) -> String {
        self.records += 1;
        self.kept += count(&mut self.engines, &record.evidence.engine);
        let engine = deciders.engine_of(record);
        let (replayed, now) = replay(record, &*engine);
        let is_comparable = counts_alike && record.evidence.engine == engine.digest();
        let fuel = record.fuel.zip(now).filter(|_| is_comparable);
        self.fuel_compared += usize::from(fuel.is_some());
        self.redacted += usize::from(record.redacted.engine);
        let mut text = String::new();
        match Redecided::new(self.records, record, &replayed, fuel) {
            None => self.same += 1,
            Some(redecided) => {
                *match replayed {
                    Replayed::Same | Replayed::Different(_) => &mut self.different,
                    Replayed::NotReplayable(_) => &mut self.not_replayable,
                    Replayed::Faulted(_) => &mut self.not_decided,
                } += 1;
                if let Replayed::Different(now) = &replayed {
                    *self.changes.entry(change(&record.evidence.decision, now)).or_default() += 1;
                }
                text += &redecided.line();
                self.decisions.push(redecided);
            }
        }
        if let Some(policies) = &record.policies {
            self.kept += count(&mut self.policies, &policies.chain);
            if let Some(answers) = &mut self.asked_again {
                text += &answers.ask(self.records, record, counts_alike, |said| deciders.ask(said));
            }
        }
        for note in deciders.modules.iter_mut().flat_map(Modules::take_notes) {
            text += &format!("{note}\n");
            self.kept += note.len();
            self.missing_modules.push(note);
        }
        text
    }

    /// Counts an entry other than a decision.
    fn pass_over(&mut self, what: &What, header: Option<&Header>) {
        match what {
            What::Gap(gap) => self.missing = self.missing.saturating_add(gap.lost),
            What::Unknown(_) => self.unknown.add(header),
            What::Decision(_) | What::Write(_) | What::Swap(_) | What::Difference(_) | What::End => {}
        }
    }

    /// Fails if too much of the journal is kept after the last record.
    fn check_kept(&self) -> Result<()> {
        let notes = self.asked_again.as_ref().map_or(0, |answers| answers.kept);
        check_kept(self.kept.saturating_add(notes), format_args!("record {}", self.records))
    }

    /// Forgets what was printed: a journal may have any number of differences.
    fn forget_differences(&mut self) {
        self.decisions.clear();
        self.asked_again.iter_mut().for_each(Answers::forget_differences);
    }

    fn is_same(&self) -> bool {
        let answers = self.asked_again.as_ref().map_or(0, |answers| answers.different);
        self.different + self.not_decided + answers == 0 && self.unknown.is_empty()
    }

    fn summary(&self) -> String {
        let mut text = String::new();
        for (digest, records) in &self.policies {
            let rest = counted(*records, "record rests", "records rest");
            text += &format!("{rest} on the policies {digest}\n");
        }
        if let Some(answers) = &self.asked_again {
            text += &answers.summary();
        }
        let Self { records, same, different, not_replayable, not_decided, digest, .. } = self;
        for (change, records) in &self.changes {
            text += &format!("{}: the engine {change}\n", of_records(*records));
        }
        if self.redacted > 0 {
            let redacted = of_records(self.redacted);
            text += &format!("{redacted}: the engine was shown digests in place of what is redacted\n");
        }
        if self.missing > 0 {
            let lost = counted(
                self.missing,
                "record was lost before it could be written",
                "records were lost before they could be written",
            );
            text += &format!("{lost}\n");
        }
        text += &self.unknown.lines("replay");
        if self.torn {
            text += "the journal ends inside a block: it is being written, or its writer was killed there\n";
        }
        if self.fuel_compared > 0 {
            text += &format!("the fuel of {} was compared\n", of_records(self.fuel_compared));
        }
        text += &format!(
            "{}: {same} the same, {different} different, {not_replayable} not replayable, {not_decided} not \
             decided\n",
            of_records(*records)
        );
        if self.digests.len() < 2 {
            return text + &format!("digest of the last: {digest}\n");
        }
        for (journal, digest) in &self.digests {
            text += &format!("digest of the last of {journal}: {digest}\n");
        }
        text
    }
}

/// A number of records in words.
fn of_records(records: usize) -> String {
    counted(records, "record", "records")
}

/// Counts a record by a name; returns about how many bytes that takes.
fn count(records: &mut BTreeMap<String, usize>, name: &str) -> usize {
    if let Some(records) = records.get_mut(name) {
        *records += 1;
        return 0;
    }
    records.insert(name.to_owned(), 1);
    size_of::<(String, usize)>() + name.len()
}

impl Redecided {
    /// What the replay of a record shows; `None` if it is decided the same. `fuel` is that of then and now,
    /// where it can be compared.
    fn new(
        record: usize,
        Record { evidence, .. }: &Record,
        replayed: &Replayed,
        fuel: Option<(u64, u64)>,
    ) -> Option<Self> {
        let (what, decisions) = match replayed {
            Replayed::Same => match fuel {
                Some((then, now)) if then != now => {
                    (format!("decided the same, with {now} units of fuel instead of {then}"), None)
                }
                _ => return None,
            },
            Replayed::NotReplayable(why) => ((*why).to_owned(), None),
            Replayed::Faulted(fault) => (format!("not decided: {fault}"), None),
            Replayed::Different(decision) => {
                let (then, now) = (format!("{:?}", evidence.decision), format!("{decision:?}"));
                ("decided differently".to_owned(), Some(ThenNow { then, now }))
            }
        };
        Some(Self { record, subject: format!("{:?}", evidence.request.subject), what, decisions })
    }

    fn line(&self) -> String {
        let Self { record, subject, what, decisions } = self;
        match decisions {
            Some(ThenNow { then, now }) => {
                format!("record {record}: {what}: {subject}\n  then {then}\n  now  {now}\n")
            }
            None => format!("record {record}: {what}; it decides {subject}\n"),
        }
    }
}
