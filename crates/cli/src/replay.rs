//! `bindery replay`: decides the records of a journal again, from their evidence alone.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use bindery_host::Limits;
use bindery_journal::{Reader, Record, Replayed, replay};

use crate::engine::EngineArguments;
use crate::output;

/// Decide the records of a journal again, and list the records that the engine decides differently.
///
/// Exits with status 1 when a record is decided differently or not at all, and with 2 when the journal cannot
/// be read to its end; the records before the damage are decided all the same. A record whose replay asks a
/// question that has no recorded answer is counted, and is not a difference. The digest at the end covers all
/// records: keep it elsewhere to find out later whether records were cut off.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A journal, as `bindery playground --journal` writes it.
    journal: PathBuf,
    #[command(flatten)]
    engine: EngineArguments,
}

#[derive(Default)]
struct Counts {
    records: usize,
    same: usize,
    different: usize,
    unknown: usize,
    faulted: usize,
}

/// Runs `bindery replay`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let engine = arguments.engine.load(Limits::default().unhurried())?;
    let path = arguments.journal.display();
    let file = File::open(&arguments.journal).with_context(|| format!("{path} cannot be read"))?;
    let mut counts = Counts::default();
    let mut reader = Reader::open(BufReader::new(file)).with_context(|| path.to_string())?;
    let mut broken = None;
    for record in reader.by_ref() {
        match record {
            Ok(record) => output::print(&counts.add(&record, &replay(&record, &*engine)))?,
            Err(error) => {
                broken = Some(error);
                break;
            }
        }
    }
    output::print(&counts.summary(&reader))?;
    // The complete records were replayed all the same.
    if let Some(error) = broken {
        return Err(error).with_context(|| path.to_string());
    }
    Ok(if counts.different + counts.faulted == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Counts {
    /// Counts a record; returns the line to print.
    fn add(&mut self, record: &Record, replayed: &Replayed) -> String {
        self.records += 1;
        match replayed {
            Replayed::Same => self.same += 1,
            Replayed::Different(_) => self.different += 1,
            Replayed::NotReplayable => self.unknown += 1,
            Replayed::Faulted(_) => self.faulted += 1,
        }
        line(self.records, record, replayed)
    }

    fn summary(&self, reader: &Reader<impl Read>) -> String {
        let Counts { records, same, different, unknown, faulted } = self;
        format!(
            "{records} records: {same} the same, {different} different, {unknown} not replayable, \
             {faulted} not decided\n\
             digest of the last: {}\n",
            reader.digest()
        )
    }
}

/// The line of a record; empty if it is decided the same.
fn line(number: usize, record: &Record, replayed: &Replayed) -> String {
    let subject = &record.evidence.request.subject;
    match replayed {
        Replayed::Same => String::new(),
        Replayed::NotReplayable => {
            format!("record {number}: asks a question without a recorded answer; it decides {subject:?}\n")
        }
        Replayed::Faulted(fault) => {
            format!("record {number}: not decided: {fault}; it decides {subject:?}\n")
        }
        Replayed::Different(decision) => format!(
            "record {number}: decided differently: {subject:?}\n  then {:?}\n  now  {decision:?}\n",
            record.evidence.decision
        ),
    }
}
