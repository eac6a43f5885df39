//! Benchmarks without a cluster: one decision, and policies.
//!
//! `cargo xtask bench` builds and runs this; `docs/benchmarks.md` has the figures.

mod decide;
mod measure;
mod policy;
mod scan;
mod scenario;

use anyhow::Result;
use clap::Parser;

/// Measure without a cluster.
#[derive(Parser)]
enum Arguments {
    Decide(decide::Arguments),
    Policy(policy::Arguments),
}

fn main() -> Result<()> {
    match Arguments::parse() {
        Arguments::Decide(arguments) => decide::run(&arguments),
        Arguments::Policy(arguments) => policy::run(&arguments),
    }
}
