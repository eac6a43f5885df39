//! The project's automation: `cargo xtask COMMAND`.
//!
//! Every command installs what it needs, or says in one sentence what to install. It builds into cargo's
//! target folder and installs into the tools cache (`BINDERY_CACHE`, by default `~/.cache/bindery`).

mod bench;
mod chart;
mod check;
mod cluster;
mod components;
mod conformance;
mod crds;
mod defects;
mod image;
mod oci;
mod packages;
mod playground;
mod process;
mod record;
mod reference;
mod soak;
mod test;
mod timing;
mod toolchain;
mod tools;
mod workspace;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Build, test, measure and check Bindery.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Each command is carried out by the module of its name.
#[derive(Subcommand)]
enum Command {
    Tools(tools::Arguments),
    /// Build the components of the default engine and the policies, and print path, size and digest of each.
    Components,
    /// Check format, lints, documents, dependencies and workflows.
    Check,
    Test(test::Arguments),
    Chart(chart::Arguments),
    Crds(crds::Arguments),
    Image(image::Arguments),
    Cluster(cluster::Arguments),
    Playground(playground::Arguments),
    Conformance(conformance::Arguments),
    Record(record::Arguments),
    Reference(reference::Arguments),
    Defects(defects::Arguments),
    Bench(bench::Arguments),
    Soak(soak::Arguments),
    /// Run a test program and record how long it took; cargo calls it.
    #[command(hide = true)]
    Timed {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The chain of causes says what to do; a backtrace would show our own code.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Tools(arguments) => tools::run(&arguments),
        Command::Components => components::run(),
        Command::Check => check::run(),
        Command::Test(arguments) => test::run(&arguments),
        Command::Chart(arguments) => chart::run(&arguments),
        Command::Crds(arguments) => crds::run(&arguments),
        Command::Image(arguments) => image::run(&arguments),
        Command::Cluster(arguments) => cluster::run(&arguments),
        Command::Playground(arguments) => playground::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::Reference(arguments) => reference::run(&arguments),
        Command::Defects(arguments) => defects::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Timed { command } => timing::run(&command),
    }
}

/// Prints a result: a line on standard output. Progress goes to standard error.
fn say(line: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    // A reader that closed our output does not want the rest.
    let _ = writeln!(std::io::stdout(), "{line}");
}
