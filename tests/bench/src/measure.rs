//! Timing and its figures.

use std::fmt;
use std::hint::black_box;
use std::time::Instant;

/// Median and 99th percentile of a round, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    p50: f64,
    p99: f64,
}

/// Figures of all rounds, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Median of the rounds' medians.
    pub(crate) p50: f64,
    /// Median of the rounds' 99th percentiles.
    p99: f64,
    /// The least 99th percentile: other load on the machine only adds.
    least_p99: f64,
}

impl Figures {
    /// The figures of at least one round.
    pub(crate) fn of(rounds: &[Round]) -> Self {
        let sorted = |figure: fn(&Round) -> f64| {
            let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures
        };
        let (p50, p99) = (sorted(|round| round.p50), sorted(|round| round.p99));
        Self { p50: percentile(&p50, 50), p99: percentile(&p99, 50), least_p99: p99[0] }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = |figure: f64| if figure < 10.0 { 2 } else { 1 };
        let Self { p50, p99, least_p99 } = *self;
        write!(f, "{p50:.*} | {p99:.*} ({least_p99:.*})", digits(p50), digits(p99), digits(least_p99))
    }
}

/// Times calls one by one, with the inputs in turn.
pub(crate) fn round<I, O>(calls: usize, inputs: &[I], mut call: impl FnMut(&I) -> O) -> Round {
    let mut times = Vec::with_capacity(calls);
    for input in inputs.iter().cycle().take(calls) {
        let start = Instant::now();
        black_box(call(black_box(input)));
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Round { p50: percentile(&times, 50), p99: percentile(&times, 99) }
}

/// The smallest value that `percent` of the values do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted[rank - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_value_of_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((percentile(&hundred, 50), percentile(&hundred, 99)), (50.0, 99.0));
        assert_eq!((percentile(&[7.0], 50), percentile(&[7.0], 99)), (7.0, 7.0));
    }

    #[test]
    fn the_figures_of_several_rounds_are_their_medians() {
        let round = |p50, p99| Round { p50, p99 };
        let figures = Figures::of(&[round(3.0, 40.0), round(1.0, 90.0), round(2.0, 12.0)]);
        assert_eq!(figures.to_string(), "2.00 | 40.0 (12.0)");
    }
}
