//! The `bindery` command.
//!
//! Results go to standard output, everything else to standard error. The exit status is 0 on success, 1 when
//! a replay differs, and 2 when the input or the environment cannot be used; then one sentence says why, and
//! no file is left behind.

mod cluster;
mod compile;
mod completion;
mod diff;
mod engine;
#[cfg(feature = "playground")]
mod example;
mod explain;
mod journal;
mod logging;
mod manifest;
mod objects;
mod output;
mod plan;
#[cfg(feature = "playground")]
mod playground;
mod policies;
mod policy;
mod replay;
mod serve;
mod settings;
mod steer;
mod stop;
mod yaml;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use http::Uri;
use tracing::level_filters::LevelFilter;

use self::logging::LogArguments;

/// The version of this command, and the versions of the contract that it serves.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (contract bindery:policy@0.2.0 and @0.1.0)");

/// Bind PersistentVolumeClaims to PersistentVolumes by the decisions of a WebAssembly component.
#[derive(Parser)]
#[command(name = "bindery", version = VERSION)]
struct Arguments {
    #[command(flatten)]
    log: LogArguments,
    #[command(subcommand)]
    command: Command,
}

/// The commands; each runs in the module of its name.
#[derive(Subcommand)]
enum Command {
    Serve(Box<serve::Arguments>),
    Explain(Box<explain::Arguments>),
    Plan(plan::Arguments),
    Policy(policy::Arguments),
    Diff(diff::Arguments),
    Steer(steer::Arguments),
    Journal(journal::Arguments),
    Replay(replay::Arguments),
    Completion(completion::Arguments),
    #[command(hide = true)]
    Compile(compile::Arguments),
    #[cfg(feature = "playground")]
    Playground(playground::Arguments),
    #[cfg(feature = "playground")]
    Example(example::Arguments),
}

impl Command {
    /// The collector of its traces.
    fn collector(&self) -> Option<&Uri> {
        match self {
            Self::Serve(arguments) => arguments.otlp_endpoint.as_ref(),
            _ => None,
        }
    }

    /// The default log level.
    fn level(&self) -> LevelFilter {
        match self {
            Self::Diff(_) | Self::Explain(_) | Self::Plan(_) | Self::Steer(_) => LevelFilter::ERROR,
            _ => LevelFilter::WARN,
        }
    }
}

fn main() -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().collect();
    let ended = match completion::for_kubectl(&line) {
        Some(answer) => output::print(&answer).map(|()| ExitCode::SUCCESS),
        None => settings::parse(line).and_then(|Arguments { log, command }| {
            let _traces = log.start(command.level(), command.collector())?;
            run(command)
        }),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(arguments) => serve::run(*arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Policy(arguments) => policy::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Steer(arguments) => steer::run(&arguments),
        Command::Journal(arguments) => journal::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Completion(arguments) => completion::run(&arguments),
        Command::Compile(arguments) => compile::run(&arguments),
        #[cfg(feature = "playground")]
        Command::Playground(arguments) => playground::run(&arguments),
        #[cfg(feature = "playground")]
        Command::Example(arguments) => example::run(&arguments),
    }
}

/// Runs the work of a command on this thread.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The arguments that a command line has, without the name of the program.
    pub(crate) fn arguments_of<T: clap::Args>(line: &[&str]) -> T {
        let command = T::augment_args(clap::Command::new("bindery").no_binary_name(true));
        T::from_arg_matches(&command.get_matches_from(line)).unwrap()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_version_names_each_contract_in_the_checkout() {
        for folder in ["0.1", "0.2"] {
            let path = format!("{}wit/{folder}/world.wit", env!("BINDERY_CHECKOUT"));
            let text = std::fs::read_to_string(path).unwrap();
            let package = text.lines().find_map(|line| line.strip_prefix("package bindery:policy"));
            assert!(VERSION.contains(package.unwrap().trim_end_matches(';')), "{VERSION}");
        }
    }
}
