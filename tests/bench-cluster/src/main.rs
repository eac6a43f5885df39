//! Measures binders on a real API server: Bindery, upstream's binder without its rate limits, and what the
//! API server takes of the same writes from a client that decides nothing. Contestants take turns, so what
//! else the machine does meets all of them.
//!
//! `cargo xtask bench admission|bind|memory|writes` builds this and runs it; `docs/benchmarks.md` has the
//! figures.

mod admission;
mod bind;
mod ceiling;
mod contest;
mod contestant;
mod load;
mod memory;
mod percentile;
mod seed;
mod usage;
mod writes;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};

use crate::contestant::Contestant;

/// Measure binders on a real API server.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

/// What is measured.
#[derive(Subcommand)]
enum Bench {
    /// Reviews a second at the door of admission, and what it adds to a claim's creation.
    Admission(admission::Arguments),
    /// Claims bound a second.
    Bind(bind::Arguments),
    /// Memory, time to the first bind, and CPU without work, where many pairs are bound.
    Memory(memory::Arguments),
    /// What one write costs the API server, by how it is asked for.
    Writes(writes::Arguments),
}

/// Who takes part.
#[derive(clap::Args)]
struct Contest {
    /// The program `bindery`.
    #[arg(long, value_name = "FILE", env = "BINDERY_BINDERY")]
    bindery: PathBuf,
    /// Who else takes part.
    #[arg(long, value_enum)]
    against: Option<Against>,
    /// Rounds of each contestant.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Against {
    Upstream,
}

impl Contest {
    /// The binders, in turn.
    fn binders(&self) -> Vec<Contestant> {
        let mut binders = vec![Contestant::Bindery(self.bindery.clone())];
        binders.extend(self.against.map(|Against::Upstream| Contestant::Upstream));
        binders
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    match Arguments::parse().bench {
        Bench::Admission(arguments) => admission::run(arguments).await,
        Bench::Bind(arguments) => bind::run(&arguments).await,
        Bench::Memory(arguments) => memory::run(&arguments).await,
        Bench::Writes(arguments) => writes::run(&arguments).await,
    }
}
