//! `bindery policy`: what authors of policies need.

mod cases;
mod inspect;
mod judge;
pub(crate) mod module;
mod shown;
mod test;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Write, test and inspect policies, without a cluster.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Each command runs in the module of its name.
#[derive(Subcommand)]
enum Command {
    Inspect(inspect::Arguments),
    Test(test::Arguments),
}

/// Runs `bindery policy`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Test(arguments) => test::run(arguments),
    }
}
