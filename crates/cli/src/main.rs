//! The `bindery` command.
//!
//! - `serve`: binds the claims of a real cluster;
//! - `playground`: a cluster in one process, for stock kubectl to try;
//! - `plan`: what each claim of some manifests would get, and why not more;
//! - `replay`: a decision journal, decided again;
//! - `example`: the manifests that the playground's stories are told with.
//!
//! Results go to standard output, everything else to standard error. The exit status is 0 when the command
//! did what it was asked, 1 when a replay differs, and 2 when its input or its surroundings cannot be used;
//! then one sentence says why, and nothing is left behind.

mod engine;
mod example;
mod logging;
mod manifest;
mod objects;
mod output;
mod plan;
mod playground;
mod replay;
mod serve;
mod settings;
mod stop;
mod yaml;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use http::Uri;
use tracing::level_filters::LevelFilter;

use self::logging::LogArguments;

/// The version of this command, and of the contract that its engines keep.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (contract bindery:policy@0.1.0)");

/// Binds PersistentVolumeClaims to PersistentVolumes, by decisions that can be read, replayed and swapped.
#[derive(Parser)]
#[command(name = "bindery", version = VERSION)]
struct Arguments {
    #[command(flatten)]
    log: LogArguments,
    #[command(subcommand)]
    command: Command,
}

/// One variant for each command; each is carried out by the module of its name.
#[derive(Subcommand)]
enum Command {
    Serve(Box<serve::Arguments>),
    Playground(playground::Arguments),
    Plan(plan::Arguments),
    Replay(replay::Arguments),
    Example(example::Arguments),
}

impl Command {
    /// Where traces of it go.
    fn collector(&self) -> Option<&Uri> {
        match self {
            Self::Serve(arguments) => arguments.collector(),
            _ => None,
        }
    }

    /// What is logged unless something else is asked for.
    fn level(&self) -> LevelFilter {
        match self {
            Self::Plan(_) => LevelFilter::ERROR,
            _ => LevelFilter::WARN,
        }
    }
}

fn main() -> ExitCode {
    let ended = settings::parse(std::env::args_os().collect()).and_then(|Arguments { log, command }| {
        let _traces = log.start(command.level(), command.collector())?;
        run(command)
    });
    ended.unwrap_or_else(|error| {
        // A backtrace would show our own code; the chain says what to do.
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Playground(arguments) => playground::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Example(arguments) => example::run(&arguments),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_make_sense() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_version_names_the_contract_that_is_in_the_checkout() {
        let folder = concat!(env!("BINDERY_CHECKOUT"), "wit");
        let texts =
            std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()));
        let package = texts.flatten().find_map(|text| {
            let line = text.lines().find(|line| line.starts_with("package "))?;
            Some(line.trim_start_matches("package ").trim_end_matches(';').to_owned())
        });
        assert!(VERSION.contains(&package.unwrap()), "{VERSION}");
    }
}
