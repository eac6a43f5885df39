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

/// What is asked for to know what is not the review's.
const NOWHERE: &str = "the mix, answered 404: TLS and HTTP alone";

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
    let passing: Vec<_> = mix.iter().filter(|review| review.shape.passes()).cloned().collect();
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
    let without_denials = flat(door, &mut callers, &passing, time)?;
    row("the mix without denials", String::new(), &passing, &without_denials)?;
    for reviews in of_shapes {
        let Some(Review { shape, .. }) = reviews.first() else { continue };
        let figures = flat(door, &mut callers, reviews, time)?;
        row(shape.name(), format!("{}%", shape.share()), reviews, &figures)?;
    }
    let mut nowhere = target.nowhere().call(arguments.connections)?;
    let figures = flat(door, &mut nowhere, &mix, time)?;
    row(NOWHERE, String::new(), &mix, &figures)?;

    writeln!(
        out,
        "\n| asked for | reviews/s | of the core | review | reviews | p50 ms | p99 ms | p99.9 ms |"
    )?;
    writeln!(out, "|---|--:|--:|---|--:|--:|--:|--:|")?;
    let passes: [Part<'_>; 1] = [("all", &|_| true)];
    let whole_parts: [Part<'_>; 3] =
        [("all", &|_| true), ("that pass", &Shape::passes), ("that are denied", &|shape| !shape.passes())];
    latencies(door, &mut callers, ("the mix", &mix), whole.rate / 2.0, time, &whole_parts)?;
    let of = ("the mix without denials", passing.as_slice());
    latencies(door, &mut callers, of, without_denials.rate / 2.0, time, &passes)?;
    // What the latencies above have of the machine, of whoever asks, and of TLS and HTTP: as much is asked
    // for.
    let of = (NOWHERE, passing.as_slice());
    latencies(door, &mut nowhere, of, without_denials.rate / 2.0, time, &passes)
}

/// A part of what was answered, by name.
type Part<'a> = (&'a str, &'a dyn Fn(Shape) -> bool);

/// As many as are answered.
fn flat(door: &Door, callers: &mut [Caller], reviews: &[Review], time: Duration) -> Result<Figures> {
    drive(callers, reviews, &Pace::Flat(WARM_UP.min(time)))?;
    let before = Usage::of(door.id())?.cpu;
    let Tally { answered, seconds } = drive(callers, reviews, &Pace::Flat(time))?;
    let cpu = Usage::of(door.id())?.cpu - before;
    let number = count(answered.len());
    Ok(Figures { rate: number / seconds, cpu: cpu * 1e6 / number })
}

/// At so many a second: a row for each part.
fn latencies(
    door: &Door,
    callers: &mut [Caller],
    (what, reviews): (&str, &[Review]),
    rate: f64,
    time: Duration,
    parts: &[Part<'_>],
) -> Result<()> {
    drive(callers, reviews, &Pace::random(rate, WARM_UP.min(time)))?;
    let before = Usage::of(door.id())?.cpu;
    let Tally { answered, seconds } = drive(callers, reviews, &Pace::random(rate, time))?;
    let load = (Usage::of(door.id())?.cpu - before) / seconds * 100.0;
    let mut out = std::io::stdout();
    for (part, is_in_it) in parts {
        let counted = answered.iter().filter(|answered| is_in_it(answered.shape));
        let mut times: Vec<f64> = counted.map(|Answered { latency, .. }| latency * 1e3).collect();
        times.sort_by(f64::total_cmp);
        let number = times.len();
        let [p50, p99, p999] = [500, 990, 999].map(|per_mille| percentile(&times, per_mille));
        writeln!(
            out,
            "| {what} | {rate:.0} | {load:.0}% | {part} | {number} | {p50:.2} | {p99:.2} | {p999:.2} |"
        )?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "numbers of reviews are small")]
fn count(number: usize) -> f64 {
    number as f64
}
