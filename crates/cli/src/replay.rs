//! `bindery replay`: decides the records of a journal again, from their evidence alone, and asks the policies
//! again.

mod change;
mod modules;
mod with;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use bindery_core::Engine;
use bindery_host::FUEL_SCHEDULE;
use bindery_journal::{Ending, Files, Record, Replayed, What, replay};
use bindery_policy::{AskedAgain, Chain, PolicyDifference, PolicyEvidence};
use serde::Serialize;

use self::change::change;
use self::modules::Modules;
use self::with::WithArguments;
use crate::engine::EngineArguments;
use crate::journal::subject::decided;
use crate::output::{self, Format};
use crate::policies::{PolicyArguments, Purpose};

/// Decide the records of a journal again, and list the records that the engine decides differently.
///
/// A record is a decision; other entries of the journal are left out. The same engine must also use the same
/// fuel, where fuel was counted the same way, and so must each call of the same policy.
///
/// No policy is needed: a record has the answers of the policies that the decision rests on. With `--policy`
/// the policies are asked again too, with what they were shown then, and each answer that is another one is
/// listed. With `--modules` engines and policies are found by their digests.
///
/// Exits with status 1 when a record is decided differently or not at all, or a policy answers otherwise, and
/// with 2 when the journal cannot be read to its end; the records before the damage are decided all the same.
/// A record whose replay asks a question that has no recorded answer, or that is decided otherwise with
/// digests in place of what is redacted, is not replayable: it is counted, and is not a difference. Nor is an
/// answer of a policy that is not loaded. The digest at the end covers all records: keep it elsewhere
/// to find out later whether records were cut off.
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
    /// Find the engine and the policies of each record by their digests among the files of this folder, or in
    /// an OCI layout there, and ask those policies again. Repeat it for several folders. What is not found is
    /// named; then `--engine` and `--policy` stand in.
    #[arg(long, value_name = "FOLDER")]
    modules: Vec<PathBuf>,
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
    /// What `--modules` does not have, as sentences.
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
    /// Digest of the last record or block.
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
    /// Calls whose fuel was compared.
    fuel_compared: usize,
    /// Records whose policies were shown something that is redacted, and are not asked again.
    redacted: usize,
    /// How the loaded policies are others than the recorded ones.
    notes: BTreeSet<String>,
    differences: Vec<Answered>,
}

/// A policy answers otherwise, or uses other fuel.
#[derive(Serialize)]
struct Answered {
    record: usize,
    /// The object that was decided.
    object: String,
    #[serde(flatten)]
    difference: PolicyDifference,
}

/// Runs `bindery replay`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let engine = arguments.with.load(&arguments.engine)?;
    let chain = arguments.policies.load(arguments.engine.cache(), Purpose::Show)?;
    let modules = match &arguments.modules[..] {
        [] => None,
        folders => Some(Modules::new(folders, &arguments.engine)?),
    };
    let mut deciders = Deciders { engine, is_given: arguments.with.is_given(), chain, modules };
    let mut report = Report::new(&deciders);
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
                }
            }
            Ok(What::Gap(gap)) => report.missing += gap.lost,
            Ok(What::Write(_) | What::Swap(_) | What::Difference(_) | What::End | What::Unknown(_)) => {}
            // The complete records of the files after it are replayed all the same.
            Err(error) => _ = broken.get_or_insert(error),
        }
    }
    (report.digest, report.torn) = (files.digest().to_string(), files.ending() == Ending::Torn);
    arguments.output.print(&report, |out| out.write_all(report.summary().as_bytes()))?;
    if let Some(error) = broken {
        return Err(error.into());
    }
    Ok(if report.is_same() || arguments.with.is_given() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What decides and answers again.
struct Deciders {
    engine: Arc<dyn Engine>,
    /// See [`WithArguments::is_given`].
    is_given: bool,
    chain: Arc<Chain>,
    modules: Option<Modules>,
}

impl Deciders {
    fn engine_of(&mut self, record: &Record) -> Arc<dyn Engine> {
        match &mut self.modules {
            Some(modules) if !self.is_given => modules.engine(&record.evidence.engine, &self.engine),
            _ => Arc::clone(&self.engine),
        }
    }

    fn ask(&mut self, evidence: &PolicyEvidence) -> AskedAgain {
        match &mut self.modules {
            Some(modules) => modules.ask(evidence, &self.chain),
            None => evidence.ask_again(&self.chain),
        }
    }
}

impl Report {
    fn new(Deciders { chain, modules, .. }: &Deciders) -> Self {
        let answers = || Answers { loaded: chain.digest().to_owned(), ..Answers::default() };
        let asked_again = (chain.is_loaded() || modules.is_some()).then(answers);
        Self { asked_again, ..Self::default() }
    }

    /// Decides a record again and counts it; returns the lines to print. `counts_alike` says whether its fuel
    /// was counted as this program counts.
    fn add(&mut self, record: &Record, deciders: &mut Deciders, counts_alike: bool) -> String {
        self.records += 1;
        *self.engines.entry(record.evidence.engine.clone()).or_default() += 1;
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
            *self.policies.entry(policies.chain.clone()).or_default() += 1;
            match &mut self.asked_again {
                Some(answers) if record.redacted.policies => answers.redacted += 1,
                Some(answers) => {
                    let object = decided(&record.evidence).to_string();
                    text += &answers.add(self.records, &object, deciders.ask(policies), counts_alike);
                }
                None => {}
            }
        }
        for note in deciders.modules.iter_mut().flat_map(Modules::take_notes) {
            // Writing to a string cannot fail.
            _ = writeln!(text, "{note}");
            self.missing_modules.push(note);
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
        if let Some(answers) = &self.asked_again {
            let Answers { same, different, not_asked, not_recorded, fuel_compared, redacted, .. } = answers;
            _ = writeln!(
                text,
                "answers of policies: {same} the same, {different} different, {not_asked} not asked for \
                 again, {not_recorded} not recorded"
            );
            if *fuel_compared > 0 {
                _ = writeln!(text, "the fuel of {fuel_compared} calls of policies was compared");
            }
            if *redacted > 0 {
                _ = writeln!(
                    text,
                    "{redacted} records: policies are not asked again, they saw what is redacted"
                );
            }
        }
        let Self { records, same, different, not_replayable, not_decided, digest, .. } = self;
        for (change, records) in &self.changes {
            _ = writeln!(text, "{records} records: the engine {change}");
        }
        if self.redacted > 0 {
            let redacted = self.redacted;
            _ = writeln!(
                text,
                "{redacted} records: the engine was shown digests in place of what is redacted"
            );
        }
        if self.missing > 0 {
            _ = writeln!(text, "{} records were lost before they could be written", self.missing);
        }
        if self.torn {
            text += "the journal ends inside a block: it is being written, or its writer was killed there\n";
        }
        if self.fuel_compared > 0 {
            _ = writeln!(text, "the fuel of {} records was compared", self.fuel_compared);
        }
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

impl Answers {
    /// Counts the answers of a record about an object; returns the lines to print. `counts_alike` says
    /// whether its fuel was counted as this program counts.
    fn add(&mut self, record: usize, object: &str, asked: AskedAgain, counts_alike: bool) -> String {
        let AskedAgain { same, mut differences, fuel_same, fuel_differences, .. } = asked;
        let mut text = String::new();
        for note in asked.notes {
            if !self.notes.contains(&note) {
                // Writing to a string cannot fail.
                _ = writeln!(text, "{note}");
                self.notes.insert(note);
            }
        }
        if counts_alike {
            self.fuel_compared += fuel_same + fuel_differences.len();
            differences.extend(fuel_differences);
        }
        self.same += same;
        self.not_asked += asked.not_asked;
        self.not_recorded += asked.not_recorded;
        self.different += differences.len();
        for difference in differences {
            let PolicyDifference { policy, volume, then, now } = &difference;
            let about = volume.as_ref().map_or_else(String::new, |volume| format!(", volume {volume}"));
            _ = writeln!(
                text,
                "record {record}, {object}: policy {policy}{about}\n  then {then}\n  now  {now}"
            );
            self.differences.push(Answered { record, object: object.to_owned(), difference });
        }
        text
    }
}
