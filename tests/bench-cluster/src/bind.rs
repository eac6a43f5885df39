//! Binds per second.
//!
//! Each round has a control plane of its own with Available volumes. Then the claims are created as fast as
//! the API server accepts them, while a watcher sees each claim become Bound. Waiting claims exist before the
//! volumes; their latency counts from the creation of the first volume.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Result;
use bindery_kit::percentiles;

use crate::Binders;
use crate::binder::Binder;
use crate::figures::{head, row};
use crate::load::{Shape, Size};
use crate::round::{Figures, measure};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    binders: Binders,
    /// Claims of a round.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 5_000])]
    claims: Vec<usize>,
    /// Shapes of the claims.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Shape::Plain, Shape::PreBound])]
    shapes: Vec<Shape>,
    /// Storage classes of the claims and volumes.
    #[arg(long, value_delimiter = ',', default_values_t = [1])]
    classes: Vec<usize>,
}

/// Prints a table with a row for each round as it ends, and a table that compares the binders.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let mut binders = vec![Binder::Ceiling];
    binders.extend(arguments.binders.all());
    head(
        "<shape | classes | claims | <binder | binds per second | p50 s | p99 s | requests per bind | \
         binder CPU s | API server CPU s | peak MiB",
    )?;
    let mut compared = Vec::new();
    for (shape, size) in loads(arguments) {
        // The ceiling decides nothing, so its claims never wait for a decision.
        let binders = &binders[usize::from(shape == Shape::Waiting)..];
        let mut rounds = Vec::new();
        for number in 0..arguments.binders.rounds {
            let mut round = BTreeMap::new();
            // The order rotates, because the machine slows down and recovers.
            for at in (0..binders.len()).map(|at| (at + number) % binders.len()) {
                let figures = measure(&binders[at], shape, size).await?;
                row(&format!("{} | {}", load(shape, size, &binders[at]), cells(&figures)))?;
                round.insert(at, figures);
            }
            rounds.push(round.into_values().collect());
        }
        for (at, binder) in binders.iter().enumerate() {
            compared.push(format!("{} | {}", load(shape, size, binder), comparison(binders, &rounds, at)));
        }
    }
    writeln!(std::io::stdout(), "\nMedians of all rounds, and of the ratios within each round:\n")?;
    head(
        "<shape | classes | claims | <binder | binds per second | of the ceiling | of Bindery | \
         times upstream | p99 s | of Bindery's p99 | of upstream's p99",
    )?;
    compared.iter().try_for_each(|cells| row(cells))?;
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

fn load(shape: Shape, Size { claims, classes }: Size, binder: &Binder) -> String {
    format!("{} | {classes} | {claims} | {}", shape.name(), binder.name())
}

fn cells(figures: &Figures) -> String {
    let Figures { rate, p50, p99, requests, binder_cpu, server_cpu, peak } = figures;
    format!("{rate:.0} | {p50:.2} | {p99:.2} | {requests:.1} | {binder_cpu:.1} | {server_cpu:.1} | {peak:.0}")
}

/// The binder at this index compared with the other binders of its rounds.
fn comparison(binders: &[Binder], rounds: &[Vec<Figures>], at: usize) -> String {
    let of = |figure: fn(&Figures) -> f64| median(rounds.iter().map(|round| figure(&round[at])));
    let ratio = |is_other: fn(&Binder) -> bool, figure: fn(&Figures) -> f64| {
        let other = binders.iter().position(is_other);
        median(rounds.iter().filter_map(|round| Some(figure(&round[at]) / figure(&round[other?]))))
    };
    let is_ceiling = |binder: &Binder| matches!(binder, Binder::Ceiling);
    let is_bindery = |binder: &Binder| matches!(binder, Binder::Bindery { extras, .. } if extras.is_empty());
    let is_upstream = |binder: &Binder| matches!(binder, Binder::Upstream);
    let rate: fn(&Figures) -> f64 = |figures| figures.rate;
    let p99: fn(&Figures) -> f64 = |figures| figures.p99;
    let share = |part: f64| if part.is_nan() { String::new() } else { format!("{:.0}%", part * 100.0) };
    let times = ratio(is_upstream, rate);
    let times = if times.is_nan() { String::new() } else { format!("{times:.1}") };
    let (of_ceiling, of_bindery) = (share(ratio(is_ceiling, rate)), share(ratio(is_bindery, rate)));
    let (of_binderys, of_upstreams) = (share(ratio(is_bindery, p99)), share(ratio(is_upstream, p99)));
    let (rate, p99) = (of(rate), of(p99));
    format!("{rate:.0} | {of_ceiling} | {of_bindery} | {times} | {p99:.2} | {of_binderys} | {of_upstreams}")
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    percentiles(figures, [500])[0]
}
