//! Sends reviews as fast as they are answered, or at a given rate.
//!
//! Each connection has a thread and one review at a time. The next free connection takes the next review. At
//! a given rate, a review that waits for a connection is late, and its latency counts from the planned time.
//! So a webhook that stalls is charged for all reviews that were due meanwhile.

use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::client::Connection;
use super::reviews::{Review, Shape};

pub(crate) enum Pace {
    /// Each as soon as its connection is free, for this time.
    Flat(Duration),
    /// At these times from the beginning.
    Timed(Vec<Duration>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) shape: Shape,
    /// Seconds from the planned time to the answer.
    pub(crate) latency: f64,
}

/// All answered reviews, and the time that they took.
pub(crate) struct Tally {
    pub(crate) answered: Vec<Answered>,
    pub(crate) seconds: f64,
}

/// The state that the connections share.
struct Schedule<'a> {
    reviews: &'a [Review],
    pace: &'a Pace,
    next: AtomicUsize,
    began: OnceLock<Instant>,
}

impl Pace {
    /// A rate (per second) of independent clients: a Poisson process with a fixed seed.
    pub(crate) fn random(rate: f64, time: Duration) -> Self {
        let mut chance = StdRng::seed_from_u64(2);
        let mut at = 0.0;
        let gaps = std::iter::from_fn(|| {
            // Above 0, and 1 at most.
            let part = 1.0 - chance.random::<f64>();
            at -= part.ln() / rate;
            (at < time.as_secs_f64()).then(|| Duration::from_secs_f64(at))
        });
        Self::Timed(gaps.collect())
    }
}

/// Sends `reviews`, repeatedly, on these connections.
///
/// # Errors
///
/// When a connection breaks, or an answer is wrong.
pub(crate) fn drive(connections: &mut [Connection], reviews: &[Review], pace: &Pace) -> Result<Tally> {
    let schedule = &Schedule { reviews, pace, next: AtomicUsize::new(0), began: OnceLock::new() };
    let answered = thread::scope(|scope| {
        let threads: Vec<_> =
            connections.iter_mut().map(|it| scope.spawn(move || schedule.run(it))).collect();
        let ended =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.collect::<Result<Vec<_>>>()
    })?;
    let began = schedule.began.get().context("no review was sent")?;
    Ok(Tally { answered: answered.concat(), seconds: began.elapsed().as_secs_f64() })
}

impl Schedule<'_> {
    /// Sends reviews on one connection until the schedule ends.
    fn run(&self, connection: &mut Connection) -> Result<Vec<Answered>> {
        let began = *self.began.get_or_init(Instant::now);
        let mut answered = Vec::new();
        while let Some((review, due)) = self.next(began) {
            connection.send(review)?;
            answered.push(Answered { shape: review.shape, latency: due.elapsed().as_secs_f64() });
        }
        Ok(answered)
    }

    /// Waits for the planned time of the next review, and returns both.
    fn next(&self, began: Instant) -> Option<(&Review, Instant)> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        let due = match self.pace {
            Pace::Flat(time) => Some(Instant::now()).filter(|now| now.duration_since(began) < *time),
            Pace::Timed(times) => times.get(at).map(|time| began + *time),
        }?;
        wait_until(due);
        Some((self.reviews.get(at % self.reviews.len().max(1))?, due))
    }
}

/// Waits without the timers of an asynchronous runtime, which count in milliseconds.
fn wait_until(due: Instant) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_times_ascend_at_the_rate_of_a_poisson_process() {
        let Pace::Timed(times) = Pace::random(1_000.0, Duration::from_secs(20)) else {
            panic!("a random pace has times")
        };
        assert!(times.is_sorted());
        assert!(times.len().abs_diff(20_000) < 600, "{} of 20000", times.len());
        let short = times.windows(2).filter(|pair| pair[1] - pair[0] < Duration::from_millis(1)).count();
        // 1 - 1/e of the gaps of a Poisson process are shorter than the mean.
        assert!(short.abs_diff(times.len() * 632 / 1000) < 600, "{short} of {}", times.len());
    }
}
