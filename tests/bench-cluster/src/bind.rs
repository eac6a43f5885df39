//! Claims bound a second.
//!
//! Every round is a control plane of its own, with volumes that are Available; then the claims are created, as fast as the
//! API server takes them, while a watcher sees each become Bound.

use std::io::Write as _;

use anyhow::Result;

use crate::Contest;
use crate::contest::{Figures, contest};
use crate::contestant::Contestant;
use crate::load::{Shape, Size};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    contest: Contest,
    /// Claims of a round.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 5_000])]
    claims: Vec<usize>,
    /// Shapes of the claims.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Shape::Plain, Shape::PreBound])]
    shapes: Vec<Shape>,
    /// Storage classes over which claims and volumes are spread.
    #[arg(long, value_delimiter = ',', default_values_t = [1])]
    classes: Vec<usize>,
}

/// Prints a table, a row for each round as it ends.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let mut contestants = vec![Contestant::Ceiling];
    contestants.extend(arguments.contest.binders());
    let mut out = std::io::stdout();
    writeln!(
        out,
        "| shape | classes | claims | who | claims/s | p50 s | p99 s | requests a bind | binder CPU s | API server CPU s \
         | peak MiB |"
    )?;
    writeln!(out, "|---|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|")?;
    for (shape, size) in rounds(arguments) {
        for contestant in &contestants {
            let figures = contest(contestant, shape, size).await?;
            let (shape, who, Size { classes, claims }) = (shape.name(), contestant.name(), size);
            writeln!(out, "| {shape} | {classes} | {claims} | {who} | {} |", row(&figures))?;
        }
    }
    Ok(())
}

fn rounds(arguments: &Arguments) -> Vec<(Shape, Size)> {
    let mut rounds = Vec::new();
    for &shape in &arguments.shapes {
        for &classes in &arguments.classes {
            for &claims in &arguments.claims {
                rounds.extend((0..arguments.contest.rounds).map(|_| (shape, Size { claims, classes })));
            }
        }
    }
    rounds
}

fn row(figures: &Figures) -> String {
    let Figures { rate, p50, p99, requests, binder_cpu, server_cpu, peak } = figures;
    format!("{rate:.0} | {p50:.2} | {p99:.2} | {requests:.1} | {binder_cpu:.1} | {server_cpu:.1} | {peak:.0}")
}
