//! Reviews per second of the webhook on one core, and latencies at half of that rate.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use bindery_kit::percentiles;

use super::Arguments;
use super::client::{Connection, Target};
use super::drive::{Answered, Pace, Tally, drive};
use super::reviews::{Review, Shape, mixed};
use super::webhook::Webhook;
use crate::figures::{count, head, row};
use crate::usage::Usage;

/// The longest warm-up before a measurement.
const WARM_UP: Duration = Duration::from_secs(2);
/// Reviews of the mix; then they repeat.
const MIXED: usize = 20_000;

const MIX: &str = "the mix";
const WITHOUT_DENIALS: &str = "the mix without denials";
/// Measures TLS and HTTP without reviews.
const UNKNOWN: &str = "the mix, answered 404: TLS and HTTP alone";

/// The figures of one shape, or of the mix.
struct Figures {
    /// Reviews per second.
    rate: f64,
    /// Microseconds of the webhook's CPU for each review.
    cpu: f64,
}

/// The measured webhook, and the time of each measurement.
struct Measured<'a> {
    webhook: &'a Webhook,
    time: Duration,
}

/// Prints two tables: reviews per second by shape, and latencies of the mix.
pub(crate) fn measure(webhook: &Webhook, of_shapes: &[Vec<Review>], arguments: &Arguments) -> Result<()> {
    let target = Target::of(webhook)?;
    let measured = Measured { webhook, time: Duration::from_secs(arguments.seconds) };
    let mix = mixed(of_shapes, MIXED);
    let passing: Vec<_> = mix.iter().filter(|review| review.shape.passes()).cloned().collect();
    let mut connections = target.connect(arguments.connections)?;
    let mut unknown = target.unknown().connect(arguments.connections)?;

    head(
        "<review | of the mix | bytes | reviews per second | webhook CPU us | reviews per CPU second | \
         CPU : the mix's",
    )?;
    let whole = measured.flat(&mut connections, &mix)?;
    let print = |what: &str, share: String, reviews: &[Review], Figures { rate, cpu }: &Figures| {
        let bytes = reviews.iter().map(|review| review.body.len()).sum::<usize>() / reviews.len().max(1);
        let (busy, ratio) = (1e6 / cpu, cpu / whole.cpu);
        row(&format!("{what} | {share} | {bytes} | {rate:.0} | {cpu:.1} | {busy:.0} | {ratio:.2}"))
    };
    print(MIX, "100%".to_owned(), &mix, &whole)?;
    let without_denials = measured.flat(&mut connections, &passing)?;
    print(WITHOUT_DENIALS, String::new(), &passing, &without_denials)?;
    for reviews in of_shapes {
        let Some(Review { shape, .. }) = reviews.first() else { continue };
        let figures = measured.flat(&mut connections, reviews)?;
        print(shape.name(), format!("{}%", shape.share()), reviews, &figures)?;
    }
    print(UNKNOWN, String::new(), &mix, &measured.flat(&mut unknown, &mix)?)?;

    writeln!(std::io::stdout())?;
    head("<sent | reviews per second | of the core | <review | reviews | p50 ms | p99 ms | p99.9 ms")?;
    let all: Part<'_> = ("all", &|_| true);
    let parts: [Part<'_>; 3] =
        [all, ("that pass", &Shape::passes), ("that are denied", &|shape| !shape.passes())];
    measured.latencies(&mut connections, (MIX, &mix), whole.rate / 2.0, &parts)?;
    let half = without_denials.rate / 2.0;
    measured.latencies(&mut connections, (WITHOUT_DENIALS, &passing), half, &[all])?;
    // The share of the machine, the clients, TLS and HTTP in these latencies, at the same rate.
    measured.latencies(&mut unknown, (UNKNOWN, &passing), half, &[all])
}

/// A named part of the answered reviews.
type Part<'a> = (&'a str, &'a dyn Fn(Shape) -> bool);

impl Measured<'_> {
    /// Sends reviews as fast as they are answered.
    fn flat(&self, connections: &mut [Connection], reviews: &[Review]) -> Result<Figures> {
        drive(connections, reviews, &Pace::Flat(WARM_UP.min(self.time)))?;
        let before = Usage::of(self.webhook.id())?.cpu;
        let Tally { answered, seconds } = drive(connections, reviews, &Pace::Flat(self.time))?;
        let cpu = Usage::of(self.webhook.id())?.cpu - before;
        let number = count(answered.len());
        Ok(Figures { rate: number / seconds, cpu: cpu * 1e6 / number })
    }

    /// Sends reviews at a rate, and prints a row for each part.
    fn latencies(
        &self,
        connections: &mut [Connection],
        (what, reviews): (&str, &[Review]),
        rate: f64,
        parts: &[Part<'_>],
    ) -> Result<()> {
        drive(connections, reviews, &Pace::random(rate, WARM_UP.min(self.time)))?;
        let before = Usage::of(self.webhook.id())?.cpu;
        let Tally { answered, seconds } = drive(connections, reviews, &Pace::random(rate, self.time))?;
        let load = (Usage::of(self.webhook.id())?.cpu - before) / seconds * 100.0;
        for (part, is_in_it) in parts {
            let counted = answered.iter().filter(|answered| is_in_it(answered.shape));
            let times: Vec<f64> = counted.map(|Answered { latency, .. }| latency * 1e3).collect();
            let number = times.len();
            let [p50, p99, p999] = percentiles(times, [500, 990, 999]);
            row(&format!(
                "{what} | {rate:.0} | {load:.0}% | {part} | {number} | {p50:.2} | {p99:.2} | {p999:.2}"
            ))?;
        }
        Ok(())
    }
}
