//! `bindery journal export`: a journal as JSON lines.

use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use bindery_journal::{Entry, Files, Header};
use serde::Serialize;

use super::subject::{Filter, time};

/// Print the entries of a journal as JSON, one a line, each with its time and the replica that wrote it.
///
/// Field names are those of `docs/journal.md`. Where a file is damaged, a line on standard error says so, the
/// next file follows, and the exit status is 2.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A folder or a file of a journal.
    journal: PathBuf,
    #[command(flatten)]
    filter: Filter,
}

/// One line.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    replica: Option<&'a str>,
    #[serde(flatten)]
    entry: &'a Entry,
}

/// Runs `bindery journal export`.
pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut status = ExitCode::SUCCESS;
    let mut files = Files::open(&arguments.journal)?;
    while let Some(entry) = files.next() {
        let written = match entry {
            Ok(entry) if arguments.filter.passes(&entry) => write(&mut out, &entry, files.header()),
            Ok(_) => Ok(()),
            Err(error) => {
                eprintln!("error: {:#}", anyhow::Error::new(error));
                status = ExitCode::from(2);
                Ok(())
            }
        };
        match written {
            // A reader that has closed the output, as `head` does, is not an error.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(status),
            written => written.context("standard output cannot be written to")?,
        }
    }
    match out.flush() {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("standard output cannot be written to")
        }
        _ => Ok(status),
    }
}

fn write(out: &mut impl io::Write, entry: &Entry, header: Option<&Header>) -> io::Result<()> {
    let replica = header.map(|header| &*header.replica);
    serde_json::to_writer(&mut *out, &Line { time: time(entry.at_ms).to_string(), replica, entry })?;
    out.write_all(b"\n")
}
