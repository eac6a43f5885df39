//! `bindery replay`: decides the records of a journal again, from their evidence alone, and asks the policies
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use bindery_host::Limits;
use bindery_journal::{Reader, Record, Replayed, replay};
use bindery_policy::{AskedAgain, Chain, PolicyDifference};
use serde::Serialize;

use crate::engine::EngineArguments;
use crate::output::{self, Format};
use crate::policies::{PolicyArguments, Purpose};

/// Decide the records of a journal again, and list the records that the engine decides differently.
///
/// No policy is needed: a record has the answers of the policies that the decision rests on. With `--policy`
/// the policies are asked again too, with what they were shown then, and each answer that is another one is
/// listed.
///
/// Exits with status 1 when a record is decided differently or not at all, or a policy answers otherwise, and
/// with 2 when the journal cannot be read to its end; the records before the damage are decided all the same.
/// A record whose replay asks a question that has no recorded answer is counted, and is not a difference; nor
/// is an answer of a policy that is not loaded. The digest at the end covers all records: keep it elsewhere
/// to find out later whether records were cut off.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A journal, as `bindery playground --journal` writes it.
    journal: PathBuf,
    /// Format of the result.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
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
    /// The records that are not decided the same.
    decisions: Vec<Redecided>,
    /// Number of records that rest on policies, by the digest of the policies.
    policies: BTreeMap<String, usize>,
    /// What the loaded policies answer; `None` if none is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_again: Option<Answers>,
    /// Digest of the last record.
    digest: String,
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

/// What policies answer when they are asked again.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answers {
    /// Digest of the loaded policies.
    loaded: String,
    same: usize,
    different: usize,
    not_asked: usize,
    not_recorded: usize,
    /// How the loaded policies are others than the recorded ones.
    notes: BTreeSet<String>,
    differences: Vec<Answered>,
}

/// A policy answers otherwise.
#[derive(Serialize)]
struct Answered {
    record: usize,
    #[serde(flatten)]
    difference: PolicyDifference,
}

/// Runs `bindery replay`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let engine = arguments.engine.load(Limits::default())?;
    let chain = arguments.policies.load(arguments.engine.cache(), Purpose::Show)?;
    let path = arguments.journal.display();
    let file = File::open(&arguments.journal).with_context(|| format!("{path} cannot be read"))?;
    let mut report = Report::new(&chain);
    let mut reader = Reader::open(BufReader::new(file)).with_context(|| path.to_string())?;
    let mut broken = None;
    for record in reader.by_ref() {
        match record {
            Ok(record) => {
                let text = report.add(&record, &replay(&record, &*engine), &chain);
                if matches!(arguments.output, Format::Table) {
                    output::print(&text)?;
                    report.forget_differences();
                }
            }
            Err(error) => {
                broken = Some(error);
                break;
            }
        }
    }
    report.digest = reader.digest();
    arguments.output.print(&report, |out| out.write_all(report.summary().as_bytes()))?;
    // The complete records were replayed all the same.
    if let Some(error) = broken {
        return Err(error).with_context(|| path.to_string());
    }
    Ok(if report.is_same() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Report {
    fn new(chain: &Chain) -> Self {
        let answers = || Answers { loaded: chain.digest().to_owned(), ..Answers::default() };
        let asked_again = chain.is_loaded().then(answers);
        Self { asked_again, ..Self::default() }
    }

    /// Counts a record; returns the lines to print.
    fn add(&mut self, record: &Record, replayed: &Replayed, chain: &Chain) -> String {
        self.records += 1;
        let mut text = String::new();
        match Redecided::new(self.records, record, replayed) {
            None => self.same += 1,
            Some(redecided) => {
                *match replayed {
                    Replayed::Same | Replayed::Different(_) => &mut self.different,
                    Replayed::NotReplayable => &mut self.not_replayable,
                    Replayed::Faulted(_) => &mut self.not_decided,
                } += 1;
                text += &redecided.line();
                self.decisions.push(redecided);
            }
        }
        if let Some(policies) = &record.policies {
            *self.policies.entry(policies.chain.clone()).or_default() += 1;
            if let Some(answers) = &mut self.asked_again {
                text += &answers.add(self.records, policies.ask_again(chain));
            }
        }
        text
    }

    /// Forgets what was printed: a journal may have any number of differences.
    fn forget_differences(&mut self) {
        self.decisions.clear();
        self.asked_again.iter_mut().for_each(|answers| answers.differences.clear());
    }

    fn is_same(&self) -> bool {
        let answers = self.asked_again.as_ref().map_or(0, |answers| answers.different);
        self.different + self.not_decided + answers == 0
    }

    fn summary(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for (digest, records) in &self.policies {
            _ = writeln!(text, "{records} records rest on the policies {digest}");
        }
        if let Some(Answers { same, different, not_asked, not_recorded, .. }) = &self.asked_again {
            _ = writeln!(
                text,
                "answers of policies: {same} the same, {different} different, {not_asked} not asked for \
                 again, {not_recorded} not recorded"
            );
        }
        let Self { records, same, different, not_replayable, not_decided, digest, .. } = self;
        _ = writeln!(
            text,
            "{records} records: {same} the same, {different} different, {not_replayable} not replayable, \
             {not_decided} not decided\n\
             digest of the last: {digest}"
        );
        text
    }
}

impl Redecided {
    /// What the replay of a record shows; `None` if it is decided the same.
    fn new(record: usize, Record { evidence, .. }: &Record, replayed: &Replayed) -> Option<Self> {
        let (what, decisions) = match replayed {
            Replayed::Same => return None,
            Replayed::NotReplayable => ("asks a question without a recorded answer".to_owned(), None),
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

impl Answers {
    /// Counts the answers of a record; returns the lines to print.
    fn add(&mut self, record: usize, asked: AskedAgain) -> String {
        let mut text = String::new();
        for note in asked.notes {
            if !self.notes.contains(&note) {
                // Writing to a string cannot fail.
                _ = writeln!(text, "{note}");
                self.notes.insert(note);
            }
        }
        self.same += asked.same;
        self.not_asked += asked.not_asked;
        self.not_recorded += asked.not_recorded;
        self.different += asked.differences.len();
        for difference in asked.differences {
            let PolicyDifference { policy, volume, then, now } = &difference;
            let about = volume.as_ref().map_or_else(String::new, |volume| format!(", volume {volume}"));
            _ = writeln!(text, "record {record}: policy {policy}{about}\n  then {then}\n  now  {now}");
            self.differences.push(Answered { record, difference });
        }
        text
    }
}
