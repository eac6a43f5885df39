//! `bindery policy`: what authors of policies need.

mod bench;
#[cfg(feature = "authoring")]
mod build;
mod cases;
mod inspect;
mod judge;
pub(crate) mod module;
#[cfg(feature = "authoring")]
mod new;
mod recorded;
mod shown;
mod test;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Write, test, measure and inspect policies, without a cluster.
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
    Inspect(inspect::Arguments),
    Test(test::Arguments),
}

/// Runs `bindery policy`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        #[cfg(feature = "authoring")]
        Command::New(arguments) => new::run(arguments),
        #[cfg(feature = "authoring")]
        Command::Build(arguments) => build::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Test(arguments) => test::run(arguments),
    }
}
