//! The runner of recorded cases; `cargo xtask conformance` builds what it needs and calls it.

#![expect(clippy::print_stdout, reason = "a command prints its result")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use bindery_conformance::{Engines, Verdict, case, run};
use bindery_core::Engine;
use bindery_engine::DefaultEngine;
use bindery_host::{Host, Limits, Options};
use clap::{Parser, ValueEnum};

/// Runs recorded cases of upstream's controller through the real binder on the simulator.
#[derive(Parser)]
struct Arguments {
    /// The engine that decides; the other one replays every decision and must agree.
    #[arg(long, value_enum, default_value = "component")]
    engine: Which,
    /// The default engine as a component.
    #[arg(long, env = "BINDERY_ENGINE", value_name = "FILE")]
    component: PathBuf,
    /// Print the whole trace of each failing case.
    #[arg(short, long)]
    verbose: bool,
    /// Run only cases whose id contains this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Corpora: JSON lines, plain or gzip.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Which {
    Native,
    Component,
}

fn main() -> ExitCode {
    match execute(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs the corpora and returns how many cases failed.
fn execute(arguments: &Arguments) -> Result<usize> {
    let engines = engines(arguments)?;
    let (mut passed, mut failed) = (0, 0);
    for file in &arguments.files {
        for line in case::read(file)? {
            let verdict = match &line.case {
                Ok(case) if arguments.only.as_ref().is_some_and(|text| !case.id.contains(text.as_str())) => {
                    continue;
                }
                Ok(case) => run(case, &engines),
                Err(error) => Verdict::unreadable(error),
            };
            if verdict.passed() {
                passed += 1;
            } else {
                failed += 1;
                print!("{}", verdict.report(&line.place, arguments.verbose));
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed)
}

fn engines(arguments: &Arguments) -> Result<Engines> {
    let host = Host::new(&Options::default())?;
    let component = host
        .load_file(&arguments.component, Limits::default())
        .with_context(|| format!("cannot load the engine {}", arguments.component.display()))?;
    let (native, component): (Arc<dyn Engine>, Arc<dyn Engine>) =
        (Arc::new(DefaultEngine), Arc::new(component));
    Ok(match arguments.engine {
        Which::Native => Engines { leader: native, follower: component },
        Which::Component => Engines { leader: component, follower: native },
    })
}
