//! `bindery journal show`: what was decided, for people.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use bindery_controller::{Target, Write};
use bindery_core::{Action, Decision, GuardRead, GuardVerdict, Outcome, Tally};
use bindery_journal::{DecisionSummary, Differed, Entry, Files, Record, Swap, What, Wrote};
use bindery_policy::PolicyEvidence;

use super::damaged;
use super::subject::{Filter, time};
use super::verify::words;
use crate::output;

/// Show what was decided of objects, when, by which engine and policies, and what became of the writes.
///
/// `bindery journal export` prints all of it for programs.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A folder or a file of a journal.
    journal: PathBuf,
    #[command(flatten)]
    filter: Filter,
}

/// The replica, the engine and the policies that decide.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct DecidedBy {
    replica: String,
    engine: String,
    policies: Option<String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut files = Files::open(&arguments.journal)?;
    let (mut before, mut status) = (DecidedBy::default(), ExitCode::SUCCESS);
    while let Some(entry) = files.next() {
        match entry {
            Ok(entry) if arguments.filter.passes(&entry) => {
                let mut text = String::new();
                if let What::Decision(record) = &entry.what {
                    let deciders = DecidedBy::of(record, files.header().map(|header| &*header.replica));
                    if deciders != before {
                        text += &deciders.text();
                        before = deciders;
                    }
                }
                text += &shown(&entry);
                output::print(&text)?;
            }
            Ok(_) => {}
            Err(error) => status = damaged(error),
        }
    }
    Ok(status)
}

impl DecidedBy {
    /// Who has decided a record; `None` for a replica that is not known.
    pub(crate) fn of(record: &Record, replica: Option<&str>) -> Self {
        let (engine, policies) = (record.evidence.engine.clone(), record.chain.clone());
        Self { replica: replica.unwrap_or_default().to_owned(), engine, policies }
    }

    pub(crate) fn text(&self) -> String {
        let Self { replica, engine, policies } = self;
        let replica = if replica.is_empty() { String::new() } else { format!("replica {replica}, ") };
        let policies = policies.as_ref().map_or_else(String::new, |digest| format!(", policies {digest}"));
        format!("{replica}engine {engine}{policies}\n")
    }
}

/// An entry in words: a line, and more lines below it.
pub(crate) fn shown(Entry { at_ms, what }: &Entry) -> String {
    let at = time(*at_ms);
    match what {
        What::Decision(record) => format!("{at}  {}", decision(record)),
        What::Write(wrote) => format!("{at}  {}\n", write(wrote)),
        What::Swap(Swap::Engine { from, to }) => format!("{at}  engine {to} in place of {from}\n"),
        What::Swap(Swap::Policies { from, to }) => format!("{at}  policies {to} in place of {from}\n"),
        What::Difference(differed) => format!("{at}  {}", difference(differed)),
        What::Gap(gap) => format!("{at}  gap: {}\n", words(gap)),
        What::End => format!("{at}  end of a file\n"),
        What::Unknown(kind) => format!("{at}  a record of kind {kind}, which a later version has written\n"),
    }
}

fn decision(Record { evidence, guard, policies, fuel, reads, .. }: &Record) -> String {
    let steps: Vec<String> = evidence.decision.actions().map(step).collect();
    let steps = if steps.is_empty() { "nothing to do".to_owned() } else { steps.join(", ") };
    let mut text = format!("{}: {steps}{}", evidence.request.subject.key(), outcome(&evidence.decision));
    text += &match guard {
        GuardVerdict::Passed => "\n".to_owned(),
        GuardVerdict::Refused(why) => format!("\n    refused: {why}\n"),
        GuardVerdict::Unproven(why) => format!("\n    not carried out, a live read failed: {why}\n"),
        GuardVerdict::Stale(why) => format!("\n    not carried out, decided again: {why}\n"),
    };
    for Tally { reason, count, nearest } in &evidence.decision.tallies {
        text += &format!("    not chosen, {}: {count} ({})\n", reason.name(), nearest.join(", "));
    }
    if let Some(policies) = policies {
        text += &said(policies);
    }
    for read in reads {
        text += &format!("    {}\n", guard_read(read));
    }
    if let Some(fuel) = fuel {
        text += &format!("    engine: {fuel} units of fuel\n");
    }
    text
}

fn guard_read(GuardRead { key, found }: &GuardRead) -> String {
    let found = match found {
        Ok(Some((_, version))) => format!("version {version}"),
        Ok(None) => "there is none".to_owned(),
        Err(why) => format!("failed: {why}"),
    };
    format!("read live for the guard: {key}: {found}")
}

fn kind_of(is_claim: bool) -> &'static str {
    if is_claim { "persistentvolumeclaim" } else { "persistentvolume" }
}

fn step(action: &Action) -> String {
    match action {
        Action::Emit(event) => format!("event {}", event.kind.type_and_reason().1),
        Action::EnqueueClaim(key) => format!("decide claim {key} soon"),
        Action::StartOperation(operation) => format!("start operation {:?}", operation.kind),
        Action::CallPlugin { plugin, operation } => format!("call plugin {plugin} to {operation:?}"),
        action => {
            let write = Write::<()>::from(action.clone());
            match write.target() {
                Target::None => write.name().to_owned(),
                target => format!("{} {}", write.name(), target.name()),
            }
        }
    }
}

fn outcome(decision: &Decision) -> String {
    match &decision.outcome {
        Outcome::Done => String::new(),
        Outcome::Continue(point) => format!("; then {point:?}"),
        Outcome::Failed(failure) => format!("; failed: {failure}"),
    }
}

/// What policies have said, volume by volume.
fn said(policies: &PolicyEvidence) -> String {
    let mut text = String::new();
    for matcher in &policies.matchers {
        text += &format!("    policy {}: {}\n", matcher.policy.name, matcher.narrowing_in_words());
        for (volume, verdict) in matcher.verdicts_in_words() {
            text += &format!("      volume {volume}: {verdict}\n");
        }
    }
    for reclaimer in &policies.reclaimers {
        let (name, answer) = (&reclaimer.policy.name, reclaimer.answer_in_words());
        text += &format!("    policy {name}: volume {}: {answer}\n", reclaimer.volume);
    }
    for skipped in &policies.skipped {
        text += &format!("    policy {} was left out: {}\n", skipped.policy, skipped.why);
    }
    if policies.volumes_left_out > 0 {
        let more = output::counted(policies.volumes_left_out, "more volume was", "more volumes were");
        text += &format!("    {more} judged\n");
    }
    for call in &policies.calls {
        text += &format!("    policy {}: {}\n", call.policy, call.fuel_in_words());
    }
    text
}

fn difference(differed: &Differed) -> String {
    let Differed { kind, shadow, object, claim, difference, active, instead, .. } = differed;
    let object_kind = kind_of(*claim);
    let told = |DecisionSummary { answer, reason }: &DecisionSummary| {
        if reason.is_empty() { answer.clone() } else { format!("{answer}: {reason}") }
    };
    let (active, instead) = (told(active), told(instead));
    format!(
        "{object_kind} {object}: shadow {kind} {shadow} differs, {difference}\n    \
         decided: {active}\n    shadow: {instead}\n"
    )
}

fn write(Wrote { write, object, claim, version, result, .. }: &Wrote) -> String {
    let kind = kind_of(*claim);
    let from = version.as_ref().map_or_else(String::new, |version| format!(" from version {version}"));
    let became = match result {
        Ok(Some(version)) => format!("{from} to version {version}"),
        Ok(None) => from,
        Err(why) => format!("{from} failed: {why}"),
    };
    format!("{kind} {object}: write: {write}{became}")
}
