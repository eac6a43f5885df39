//! The project's automation, behind one door: `cargo xtask COMMAND`.
//!
//! Every command installs what it needs, or says in one sentence what to install. What it builds goes to
//! cargo's target folder, what it installs to the tools cache (`BINDERY_CACHE`, by default
//! `~/.cache/bindery`).
//!
//! - [`tools`]: the pinned programs that tests and checks use, built from packages;
//! - [`components`]: the default engine as a WebAssembly component;
//! - [`check`], [`mod@test`]: what a change must pass;
//! - [`conformance`]: recorded cases of upstream's controller; [`mod@record`]: how they are recorded;
//! - [`defects`]: known bugs that the tests must catch;
//! - [`mod@bench`]: figures; [`soak`]: what is worth hours;
//! - [`chart`]: what in the Helm chart is made from other files;
//! - [`image`]: Bindery's container image; [`oci`]: what container images are;
//! - [`cluster`]: a real cluster on this machine;
//! - [`playground`]: a cluster to try, on this machine;
//! - [`toolchain`]: a Rust that compiles for other targets;
//! - [`packages`]: what packages are made of;
//! - [`workspace`], [`process`]: where things are, and running other programs.

mod bench;
mod chart;
mod check;
mod cluster;
mod components;
mod conformance;
mod defects;
mod image;
mod oci;
mod packages;
mod playground;
mod process;
mod record;
mod soak;
mod test;
mod toolchain;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Build, test, measure and check Bindery.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// One variant for each command; each is carried out by the module of its name.
#[derive(Subcommand)]
enum Command {
    Tools(tools::Arguments),
    Components(components::Arguments),
    /// Check format, lints, documents and dependencies.
    Check,
    Test(test::Arguments),
    Chart(chart::Arguments),
    Image(image::Arguments),
    Cluster(cluster::Arguments),
    Playground(playground::Arguments),
    Conformance(conformance::Arguments),
    Record(record::Arguments),
    Defects(defects::Arguments),
    Bench(bench::Arguments),
    Soak(soak::Arguments),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A backtrace would show our own code; the chain says what to do.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Tools(arguments) => tools::run(&arguments),
        Command::Components(arguments) => components::run(&arguments),
        Command::Check => check::run(),
        Command::Test(arguments) => test::run(&arguments),
        Command::Chart(arguments) => chart::run(&arguments),
        Command::Image(arguments) => image::run(&arguments),
        Command::Cluster(arguments) => cluster::run(&arguments),
        Command::Playground(arguments) => playground::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::Defects(arguments) => defects::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
    }
}

/// Prints a result for whoever called: a line on standard output. Progress goes to standard error.
fn say(line: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    // Whoever closed our output does not want to read the rest.
    let _ = writeln!(std::io::stdout(), "{line}");
}
