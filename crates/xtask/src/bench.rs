//! `cargo xtask bench`: figures, measured on this machine; those that are told are in `docs/benchmarks.md`.

use std::ffi::OsString;
use std::process::Command;

use anyhow::Result;

use crate::{components, process, tools, workspace};

/// Measure, and print a table.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

/// What is measured.
#[derive(clap::Subcommand)]
enum Bench {
    /// One decision: through the component, natively, and as a scan like upstream's; `--help` after `--`
    /// tells options.
    Decide {
        /// Passed on to the benchmark.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Reviews a second at the door of admission, and what it adds to a claim's creation, beside CEL.
    Admission {
        /// Passed on to the benchmark: `[--volumes N] [--seconds N] [--connections N] [--creations N]
        /// [--rounds N]`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Binds a second on a real API server, which is installed first; `--help` after `--` tells options.
    Bind {
        /// Passed on to the benchmark: `[--claims N,...] [--shapes plain,pre-bound,waiting] [--classes
        /// N,...] [--against upstream]`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// What one write costs the API server, by how it is asked for.
    Writes {
        /// Passed on to the benchmark: `[--writes N] [--rounds N]`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Memory of a binder with 100,000 bound pairs, time to its first bind, CPU without work.
    Memory {
        /// Passed on to the benchmark: `[--pairs N] [--against upstream]`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

/// Carries out `cargo xtask bench`.
///
/// # Errors
/// When the component or the benchmark cannot be built, or the benchmark fails.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.bench {
        Bench::Decide { arguments } => {
            let mut command = released("bindery-bench")?;
            process::run(command.arg("--engine").arg(components::build()?).args(arguments))
        }
        Bench::Admission { arguments } => of_bindery("admission", arguments),
        Bench::Bind { arguments } => of_bindery("bind", arguments),
        Bench::Memory { arguments } => of_bindery("memory", arguments),
        Bench::Writes { arguments } => {
            on_a_cluster(&mut released("bindery-bench-cluster")?, "writes", arguments)
        }
    }
}

/// A benchmark of the program as a whole.
fn of_bindery(bench: &str, arguments: &[OsString]) -> Result<()> {
    let bindery = released("bindery")?.get_program().to_owned();
    let mut command = released("bindery-bench-cluster")?;
    command.env("BINDERY_BINDERY", bindery).env("BINDERY_ENGINE", components::build()?);
    on_a_cluster(&mut command, bench, arguments)
}

/// A benchmark that needs a control plane.
fn on_a_cluster(command: &mut Command, bench: &str, arguments: &[OsString]) -> Result<()> {
    tools::offer_control_plane(command)?;
    process::run(command.arg(bench).args(arguments))
}

/// A benchmark, built as what is measured would be built for use.
fn released(package: &str) -> Result<Command> {
    process::run(workspace::cargo().args(["build", "--quiet", "--release", "--package", package]))?;
    Ok(Command::new(workspace::target_folder()?.join("release").join(package)))
}
