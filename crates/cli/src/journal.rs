//! `bindery journal`: reads what `bindery serve --journal` has recorded. `recording.rs` is the other side,
//! and `sending.rs` sends it elsewhere.

mod export;
pub(crate) mod kept;
pub(crate) mod recording;
mod redaction;
pub(crate) mod sending;
pub(crate) mod show;
pub(crate) mod subject;
#[cfg(test)]
mod tests;
pub(crate) mod unknown;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use bindery_journal::FileError;
use clap::Subcommand;

/// Show, export and verify the journal of `bindery serve --journal`.
///
/// A journal may be read while it is written. A name of a folder stands for all journals in it.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Each command runs in the module of its name.
#[derive(Subcommand)]
enum Command {
    Show(show::Arguments),
    Export(export::Arguments),
    Verify(verify::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Show(arguments) => show::run(arguments),
        Command::Export(arguments) => export::run(arguments),
        Command::Verify(arguments) => verify::run(arguments),
    }
}

/// Tells that a file is damaged. Returns the status of a command that goes on with the next file.
pub(crate) fn damaged(error: FileError) -> ExitCode {
    eprintln!("error: {:#}", anyhow::Error::new(error));
    ExitCode::from(2)
}
