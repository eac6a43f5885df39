//! Benchmarks without a cluster: one decision, the journal, policies, and a plan.
//!
//! `cargo xtask bench` builds and runs this; `docs/benchmarks.md` has the figures.

mod decide;
mod journal;
mod measure;
mod plan;
mod policy;
mod scan;
mod scenario;

use anyhow::Result;
use clap::Parser;

/// Measure without a cluster.
#[derive(Parser)]
enum Arguments {
    Decide(decide::Arguments),
    Journal(journal::Arguments),
    Plan(plan::Arguments),
    Policy(policy::Arguments),
}

fn main() -> Result<()> {
    match Arguments::parse() {
        Arguments::Decide(arguments) => decide::run(&arguments),
        Arguments::Journal(arguments) => journal::run(&arguments),
        Arguments::Plan(arguments) => plan::run(&arguments),
        Arguments::Policy(arguments) => policy::run(&arguments),
    }
}
