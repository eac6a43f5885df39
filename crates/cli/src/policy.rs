//! `bindery policy`: what authors of policies need, and what distributes their policies.

mod bench;
#[cfg(feature = "authoring")]
mod build;
pub(crate) mod carried;
mod cases;
mod golden;
mod history;
mod inspect;
pub(crate) mod judge;
pub(crate) mod module;
#[cfg(feature = "authoring")]
mod new;
mod preview;
mod pull;
mod push;
pub(crate) mod questions;
mod recorded;
pub(crate) mod registry;
mod shown;
mod sign;
mod test;
#[cfg(test)]
mod tests;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Write, test, measure, inspect, distribute and sign policies; preview and take back those of a cluster.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Each command runs in the module of its name.
#[derive(Subcommand)]
enum Command {
    #[cfg(feature = "authoring")]
    New(new::Arguments),
    #[cfg(feature = "authoring")]
    Build(build::Arguments),
    Bench(bench::Arguments),
    History(history::HistoryArguments),
    Inspect(inspect::Arguments),
    Preview(preview::Arguments),
    Pull(pull::Arguments),
    Push(push::Arguments),
    Sign(sign::Arguments),
    Test(test::Arguments),
    Undo(history::UndoArguments),
    Verify(verify::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        #[cfg(feature = "authoring")]
        Command::New(arguments) => new::run(arguments),
        #[cfg(feature = "authoring")]
        Command::Build(arguments) => build::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::History(arguments) => history::print(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Preview(arguments) => preview::run(arguments),
        Command::Pull(arguments) => pull::run(arguments),
        Command::Push(arguments) => push::run(arguments),
        Command::Sign(arguments) => sign::run(arguments),
        Command::Test(arguments) => test::run(arguments),
        Command::Undo(arguments) => history::undo(arguments),
        Command::Verify(arguments) => verify::run(arguments),
    }
}
