//! Measures binders on a real API server: Bindery, upstream's binder without its rate limits, and the
//! ceiling, which is a client that makes the same writes and decides nothing. Binders take turns, so other
//! load on the machine affects all of them.
//!
//! `cargo xtask bench admission|beside|bind|memory|steer|takeover|writes` builds and runs this;
//! `docs/benchmarks.md` has the figures.

mod admission;
mod beside;
mod bind;
mod binder;
mod ceiling;
mod extra;
mod figures;
mod load;
mod memory;
mod round;
mod steer;
mod steps;
mod takeover;
mod usage;
mod writes;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};

use crate::binder::Binder;
use crate::extra::{Extra, Modules};

/// Measure binders on a real API server.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

/// The benchmarks.
#[derive(Subcommand)]
enum Bench {
    /// Reviews per second of the webhook, and the time that it adds to the creation of a claim.
    Admission(admission::Arguments),
    /// Binds per second of claims without a policy, beside claims with one.
    Beside(beside::Arguments),
    /// Binds per second.
    Bind(bind::Arguments),
    /// Memory, time to the first bind, and idle CPU with many bound pairs.
    Memory(memory::Arguments),
    /// Steered claims through upstream's binder, beside plain ones.
    Steer(steer::Arguments),
    /// Time to the next bind after a leader is killed, and after an outage of the API server.
    Takeover(takeover::Arguments),
    /// The API server's CPU for one write, by the kind of request.
    Writes(writes::Arguments),
}

/// The binders to compare.
#[derive(clap::Args)]
struct Binders {
    /// The program `bindery`.
    #[arg(long, value_name = "FILE", env = "BINDERY_BINDERY")]
    bindery: PathBuf,
    /// Another binder to compare with.
    #[arg(long, value_enum)]
    against: Option<Against>,
    /// What Bindery does beside binding: compared with Bindery alone, each by itself and all together.
    #[arg(long, value_enum, value_delimiter = ',')]
    beside: Vec<Extra>,
    #[command(flatten)]
    modules: Modules,
    /// Rounds of each binder.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Against {
    Upstream,
}

impl Binders {
    /// The binders in the order of their turns.
    fn all(&self) -> Vec<Binder> {
        let each = self.beside.iter().map(|&extra| vec![extra]);
        let together = (self.beside.len() > 1).then(|| self.beside.clone());
        let extras = [Vec::new()].into_iter().chain(each).chain(together);
        let (program, modules) = (&self.bindery, &self.modules);
        let bindery = |extras| Binder::Bindery { program: program.clone(), extras, modules: modules.clone() };
        let mut binders: Vec<_> = extras.map(bindery).collect();
        binders.extend(self.against.map(|Against::Upstream| Binder::Upstream));
        binders
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    match Arguments::parse().bench {
        Bench::Admission(arguments) => admission::run(arguments).await,
        Bench::Beside(arguments) => beside::run(&arguments).await,
        Bench::Bind(arguments) => bind::run(&arguments).await,
        Bench::Memory(arguments) => memory::run(&arguments).await,
        Bench::Steer(arguments) => steer::run(&arguments).await,
        Bench::Takeover(arguments) => takeover::run(&arguments).await,
        Bench::Writes(arguments) => writes::run(&arguments).await,
    }
}
