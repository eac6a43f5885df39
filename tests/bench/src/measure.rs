//! Timing, and what is told of it.

use std::fmt;
use std::hint::black_box;
use std::time::Instant;

/// Median and 99th percentile, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Figures {
    /// Worse than any.
    pub(crate) const WORST: Self = Self { p50: f64::INFINITY, p99: f64::INFINITY };

    /// Takes over what is less.
    pub(crate) fn improve(&mut self, other: Self) {
        self.p50 = self.p50.min(other.p50);
        self.p99 = self.p99.min(other.p99);
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = |figure: f64| if figure < 10.0 { 2 } else { 1 };
        let (p50, p99) = (self.p50, self.p99);
        write!(f, "{p50:.*} | {p99:.*}", digits(p50), digits(p99))
    }
}

/// Times so many calls, one by one, with the inputs in turn.
pub(crate) fn round<I, O>(calls: usize, inputs: &[I], mut call: impl FnMut(&I) -> O) -> Figures {
    let mut times = Vec::with_capacity(calls);
    for input in inputs.iter().cycle().take(calls) {
        let start = Instant::now();
        black_box(call(black_box(input)));
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Figures { p50: percentile(&times, 50), p99: percentile(&times, 99) }
}

/// The least value that so many of a hundred do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted[rank - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_least_value_that_so_many_do_not_exceed() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((percentile(&hundred, 50), percentile(&hundred, 99)), (50.0, 99.0));
        assert_eq!((percentile(&[7.0], 50), percentile(&[7.0], 99)), (7.0, 7.0));
    }
}
