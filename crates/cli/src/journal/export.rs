//! `bindery journal export`: a journal as JSON lines.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use bindery_journal::{Entry, Files};
use serde::Serialize;

use super::damaged;
use super::subject::{Filter, time};
use crate::output;

/// Print the entries of a journal as JSON, one a line, each with its time and the replica that wrote it.
///
/// Field names are those of `crates/journal/src/record.rs` in camelCase. Where a file is damaged, a line on
/// standard error says so, the next file follows, and the exit status is 2.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A folder or a file of a journal.
    journal: PathBuf,
    #[command(flatten)]
    filter: Filter,
}

/// One line.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    #[serde(flatten)]
    id: Option<RecordId<'a>>,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    replica: Option<&'a str>,
    #[serde(flatten)]
    entry: &'a Entry,
}

/// What a receiver tells repetitions and missing files by.
#[derive(Serialize)]
pub(super) struct RecordId<'a> {
    /// No other record has it.
    pub(super) id: String,
    /// Name of the journal in its folder.
    pub(super) journal: &'a str,
    /// Number of the file.
    pub(super) file: u64,
    /// Number of the record in the file, from 1. The record that ends a file has one too; it is not exported.
    pub(super) number: u64,
}

impl<'a> Line<'a> {
    pub(super) fn new(id: Option<RecordId<'a>>, replica: Option<&'a str>, entry: &'a Entry) -> Self {
        Self { id, time: time(entry.at_ms).to_string(), replica, entry }
    }

    /// Writes it, and ends the line.
    pub(super) fn write(&self, out: &mut impl io::Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut files = Files::open(&arguments.journal)?;
    let mut status = ExitCode::SUCCESS;
    output::write(|mut out| {
        while let Some(entry) = files.next() {
            match entry {
                Ok(entry) if arguments.filter.passes(&entry) => {
                    let replica = files.header().map(|header| &*header.replica);
                    Line::new(None, replica, &entry).write(&mut out)?;
                }
                Ok(_) => {}
                Err(error) => status = damaged(error),
            }
        }
        Ok(())
    })?;
    Ok(status)
}
