//! How many reviews a door on one core answers, and how long they take at half of that.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;

use super::Arguments;
use super::caller::{Caller, Target};
use super::door::Door;
use super::drive::{Answered, Pace, Tally, drive};
use super::reviews::{Review, Shape, mixed};
use crate::percentile::percentile;
use crate::usage::Usage;

/// How long is asked before anything is measured, at most.
const WARM_UP: Duration = Duration::from_secs(2);
/// Reviews of the mix; then they begin again.
const MIXED: usize = 20_000;

/// What a shape came to, or the mix.
struct Figures {
    /// Reviews a second.
    rate: f64,
    /// Microseconds of CPU of the door for each.
    cpu: f64,
}

/// Prints two tables: reviews a second by what is reviewed, and latencies of the mix.
pub(crate) fn measure(door: &Door, of_shapes: &[Vec<Review>], arguments: &Arguments) -> Result<()> {
    let target = Target::of(door)?;
    let time = Duration::from_secs(arguments.seconds);
    let mix = mixed(of_shapes, MIXED);
    let mut out = std::io::stdout();
    writeln!(
        out,
        "| review | of the mix | bytes | reviews/s | door's CPU us | reviews a CPU second | CPU : the mix's |"
    )?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|--:|")?;
    let mut callers = target.call(arguments.connections)?;
    let whole = flat(door, &mut callers, &mix, time)?;
    let mut row = |what: &str, share: String, reviews: &[Review], Figures { rate, cpu }: &Figures| {
        let bytes = reviews.iter().map(|review| review.body.len()).sum::<usize>() / reviews.len().max(1);
        let (busy, ratio) = (1e6 / cpu, cpu / whole.cpu);
        writeln!(out, "| {what} | {share} | {bytes} | {rate:.0} | {cpu:.1} | {busy:.0} | {ratio:.2} |")
    };
    row("the mix", "100%".to_owned(), &mix, &whole)?;
    for reviews in of_shapes {
        let Some(Review { shape, .. }) = reviews.first() else { continue };
        let figures = flat(door, &mut callers, reviews, time)?;
        row(shape.name(), format!("{}%", shape.share()), reviews, &figures)?;
    }
    drop(callers);
    let mut callers = target.nowhere().call(arguments.connections)?;
    let figures = flat(door, &mut callers, &mix, time)?;
    row("the mix, answered 404: TLS and HTTP alone", String::new(), &mix, &figures)?;
    let mut callers = target.call(arguments.connections)?;
    latencies(door, &mut callers, &mix, whole.rate / 2.0, time)
}

/// As many as are answered.
fn flat(door: &Door, callers: &mut [Caller], reviews: &[Review], time: Duration) -> Result<Figures> {
    drive(callers, reviews, &Pace::Flat(WARM_UP.min(time)))?;
    let before = Usage::of(door.id())?.cpu;
    let Tally { answered, seconds } = drive(callers, reviews, &Pace::Flat(time))?;
    let cpu = Usage::of(door.id())?.cpu - before;
    let number = count(answered.len());
    Ok(Figures { rate: number / seconds, cpu: cpu * 1e6 / number })
}

/// At so many a second.
fn latencies(door: &Door, callers: &mut [Caller], mix: &[Review], rate: f64, time: Duration) -> Result<()> {
    drive(callers, mix, &Pace::random(rate, WARM_UP.min(time)))?;
    let before = Usage::of(door.id())?.cpu;
    let Tally { answered, seconds } = drive(callers, mix, &Pace::random(rate, time))?;
    let load = (Usage::of(door.id())?.cpu - before) / seconds * 100.0;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "\n{rate:.0} reviews/s asked for, half of what was answered; the door took {load:.0}% of its core\n"
    )?;
    writeln!(out, "| review | reviews | p50 ms | p99 ms | p99.9 ms |")?;
    writeln!(out, "|---|--:|--:|--:|--:|")?;
    let mut row = |what: &str, is_counted: &dyn Fn(Shape) -> bool| {
        let counted = answered.iter().filter(|answered| is_counted(answered.shape));
        let mut times: Vec<f64> = counted.map(|Answered { latency, .. }| latency * 1e3).collect();
        times.sort_by(f64::total_cmp);
        let number = times.len();
        let [p50, p99, p999] = [500, 990, 999].map(|per_mille| percentile(&times, per_mille));
        writeln!(out, "| {what} | {number} | {p50:.2} | {p99:.2} | {p999:.2} |")
    };
    row("the mix", &|_| true)?;
    row("all that pass", &Shape::passes)?;
    for shape in Shape::ALL {
        row(shape.name(), &|other| other == shape)?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "numbers of reviews are small")]
fn count(number: usize) -> f64 {
    number as f64
}
