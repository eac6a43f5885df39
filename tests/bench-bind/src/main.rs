//! Measures binders on a real API server: Bindery, upstream's binder without its rate limits, and what the API server
//! takes of the same writes from a client that decides nothing.
//!
//! Every round is a control plane of its own, with volumes that are Available; then the claims are created, as fast as the
//! API server takes them, while a watcher sees each become Bound. Contestants take turns, so what else the machine does
//! meets all of them.
//!
//! `cargo xtask bench bind` builds this and runs it; `docs/benchmarks.md` has the figures.

mod ceiling;
mod contest;
mod load;
mod usage;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use crate::contest::{Contestant, Figures, contest};
use crate::load::Shape;

/// Measure binders on a real API server.
#[derive(Parser)]
struct Arguments {
    /// The program `bindery`.
    #[arg(long, value_name = "FILE")]
    bindery: PathBuf,
    /// Claims of a round.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 5_000])]
    claims: Vec<usize>,
    /// Shapes of the claims.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Shape::Plain, Shape::PreBound])]
    shapes: Vec<Shape>,
    /// Who else binds in the same run.
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

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut contestants = vec![Contestant::Ceiling, Contestant::Bindery(arguments.bindery.clone())];
    if arguments.against.is_some() {
        contestants.push(Contestant::Upstream);
    }
    let mut out = std::io::stdout();
    writeln!(
        out,
        "| shape | claims | who | claims/s | p50 s | p99 s | writes a bind | binder CPU s | API server CPU s | peak MiB |"
    )?;
    writeln!(out, "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|")?;
    for shape in &arguments.shapes {
        for claims in &arguments.claims {
            for _ in 0..arguments.rounds {
                for contestant in &contestants {
                    let figures = contest(contestant, *shape, *claims).await?;
                    writeln!(
                        out,
                        "| {} | {claims} | {} | {} |",
                        shape.name(),
                        contestant.name(),
                        row(&figures)
                    )?;
                }
            }
        }
    }
    Ok(())
}

fn row(figures: &Figures) -> String {
    let Figures { rate, p50, p99, writes, binder_cpu, server_cpu, peak } = figures;
    format!("{rate:.0} | {p50:.2} | {p99:.2} | {writes:.1} | {binder_cpu:.1} | {server_cpu:.1} | {peak:.0}")
}
