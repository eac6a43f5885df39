//! Claims bound a second.
//!
//! Every round is a control plane of its own, with volumes that are Available; then the claims are created,
//! as fast as the API server takes them, while a watcher sees each become Bound. Claims that wait are there
//! before the volumes; then the latency is from the creation of the first volume.

use std::io::Write as _;

use anyhow::Result;

use crate::Contest;
use crate::contest::{Figures, contest};
use crate::contestant::Contestant;
use crate::load::{Shape, Size};
use crate::percentile::percentile;

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

/// Prints a table, a row for each round as it ends, and then how the contestants compare.
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
    let mut compared = Vec::new();
    for (shape, size) in loads(arguments) {
        // The ceiling's client decides nothing, so no claim waits for its decision.
        let contestants = &contestants[usize::from(shape == Shape::Waiting)..];
        let mut rounds = Vec::new();
        for _ in 0..arguments.contest.rounds {
            let mut round = Vec::new();
            for contestant in contestants {
                let figures = contest(contestant, shape, size).await?;
                writeln!(out, "{} {} |", head(shape, size, contestant), row(&figures))?;
                round.push(figures);
            }
            rounds.push(round);
        }
        for (at, contestant) in contestants.iter().enumerate() {
            compared.push(format!(
                "{} {} |",
                head(shape, size, contestant),
                comparison(contestants, &rounds, at)
            ));
        }
    }
    writeln!(out, "\nMedians of the rounds, and of what each round has of another's:\n")?;
    writeln!(
        out,
        "| shape | classes | claims | who | claims/s | of the ceiling's | times upstream's | p99 s | of upstream's |"
    )?;
    writeln!(out, "|---|--:|--:|---|--:|--:|--:|--:|--:|")?;
    compared.iter().try_for_each(|row| writeln!(out, "{row}"))?;
    Ok(())
}

fn loads(arguments: &Arguments) -> Vec<(Shape, Size)> {
    let mut loads = Vec::new();
    for &shape in &arguments.shapes {
        for &classes in &arguments.classes {
            loads.extend(arguments.claims.iter().map(|&claims| (shape, Size { claims, classes })));
        }
    }
    loads
}

fn head(shape: Shape, Size { claims, classes }: Size, contestant: &Contestant) -> String {
    format!("| {} | {classes} | {claims} | {} |", shape.name(), contestant.name())
}

fn row(figures: &Figures) -> String {
    let Figures { rate, p50, p99, requests, binder_cpu, server_cpu, peak } = figures;
    format!("{rate:.0} | {p50:.2} | {p99:.2} | {requests:.1} | {binder_cpu:.1} | {server_cpu:.1} | {peak:.0}")
}

/// The contestant at this place beside the others of its rounds.
fn comparison(contestants: &[Contestant], rounds: &[Vec<Figures>], at: usize) -> String {
    let of = |figure: fn(&Figures) -> f64| median(rounds.iter().map(|round| figure(&round[at])));
    let beside = |is_other: fn(&Contestant) -> bool, figure: fn(&Figures) -> f64| {
        let other = contestants.iter().position(is_other);
        median(rounds.iter().filter_map(|round| Some(figure(&round[at]) / figure(&round[other?]))))
    };
    let is_ceiling = |who: &Contestant| matches!(who, Contestant::Ceiling);
    let is_upstream = |who: &Contestant| matches!(who, Contestant::Upstream);
    let rate: fn(&Figures) -> f64 = |figures| figures.rate;
    let p99: fn(&Figures) -> f64 = |figures| figures.p99;
    let share = |part: f64| if part.is_nan() { String::new() } else { format!("{:.0}%", part * 100.0) };
    let times = beside(is_upstream, rate);
    let times = if times.is_nan() { String::new() } else { format!("{times:.1}") };
    let (of_ceiling, of_upstream) = (share(beside(is_ceiling, rate)), share(beside(is_upstream, p99)));
    format!("{:.0} | {of_ceiling} | {times} | {:.2} | {of_upstream}", of(rate), of(p99))
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    percentile(&figures, 500)
}
