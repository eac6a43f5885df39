//! `cargo xtask bench`: benchmarks, built in release mode.

use std::ffi::OsString;
use std::process::Command;

use anyhow::Result;
use clap::ValueEnum;

use crate::{components, process, tools, workspace};

/// Measure Bindery.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[arg(value_enum)]
    bench: Bench,
    /// Passed on to the benchmark; `--help` after `--` lists its options.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// A benchmark.
#[derive(Clone, Copy, ValueEnum)]
enum Bench {
    /// One decision: by the component, natively, and as a scan like upstream's.
    Decide,
    /// Reviews per second of the webhook, and the time that it adds to creating a claim, beside CEL:
    /// `[--volumes N] [--seconds N] [--connections N] [--creations N] [--rounds N]`.
    Admission,
    /// Binds per second on a real API server: `[--claims N,...] [--shapes plain,pre-bound,waiting] [--classes
    /// N,...] [--against upstream]`.
    Bind,
    /// What one write costs the API server, by kind of request: `[--writes N] [--rounds N]`.
    Writes,
    /// Memory of a binder with 100,000 bound pairs, time to its first bind, CPU without work: `[--pairs N]
    /// [--against upstream]`.
    Memory,
    /// Time to the next bind after a leader is killed, and after an outage of the API server: `[--pairs N]
    /// [--rounds N]`.
    Takeover,
}

/// Carries out `cargo xtask bench`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let name = match arguments.bench {
        Bench::Decide => {
            let mut command = released("bindery-bench")?;
            command.arg("--engine").arg(components::build()?);
            return process::run(command.args(&arguments.arguments));
        }
        Bench::Admission => "admission",
        Bench::Bind => "bind",
        Bench::Writes => "writes",
        Bench::Memory => "memory",
        Bench::Takeover => "takeover",
    };
    let mut command = released("bindery-bench-cluster")?;
    // Of all that run on a cluster, only the writes need no Bindery.
    if name != "writes" {
        let bindery = released("bindery")?.get_program().to_owned();
        command.env("BINDERY_BINDERY", bindery).env("BINDERY_ENGINE", components::build()?);
    }
    tools::offer_control_plane(&mut command)?;
    process::run(command.arg(name).args(&arguments.arguments))
}

/// The program of a package, built as for users.
fn released(package: &str) -> Result<Command> {
    process::run(workspace::cargo().args(["build", "--quiet", "--release", "--package", package]))?;
    Ok(Command::new(workspace::target_folder()?.join("release").join(package)))
}
