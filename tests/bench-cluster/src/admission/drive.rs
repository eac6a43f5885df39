//! Asks for reviews: as many as are answered, or so many a second.
//!
//! Each connection has a thread, and one review under way at most. Whichever is free takes the next review,
//! so where reviews are to be asked for at certain times, one that waits for a free connection is late, and
//! its latency is counted from when it should have been asked for: a door that stands still is not spared
//! what would have come meanwhile.

use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::caller::Caller;
use super::reviews::{Review, Shape};

/// When reviews are asked for.
pub(crate) enum Pace {
    /// Each as soon as the one before on its connection was answered, for so long.
    Flat(Duration),
    /// At these times, counted from the beginning, whatever is answered.
    Timed(Vec<Duration>),
}

/// A review that was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) shape: Shape,
    /// Seconds from when it was to be asked for until its answer.
    pub(crate) latency: f64,
}

/// What was answered, and in which time.
pub(crate) struct Tally {
    pub(crate) answered: Vec<Answered>,
    pub(crate) seconds: f64,
}

/// What the connections share.
struct Course<'a> {
    reviews: &'a [Review],
    pace: &'a Pace,
    next: AtomicUsize,
    began: OnceLock<Instant>,
}

impl Pace {
    /// So many a second for so long, at random times as of many clients that do not know of each other (a
    /// Poisson process); the same every time.
    pub(crate) fn random(a_second: f64, time: Duration) -> Self {
        let mut chance = StdRng::seed_from_u64(2);
        let mut at = 0.0;
        let gaps = std::iter::from_fn(|| {
            // Of 1 at most, and never 0.
            let part = 1.0 - chance.random::<f64>();
            at -= part.ln() / a_second;
            (at < time.as_secs_f64()).then(|| Duration::from_secs_f64(at))
        });
        Self::Timed(gaps.collect())
    }
}

/// Asks for `reviews`, over and over, on these connections. Answers what came of it, with the connections.
///
/// # Errors
///
/// A connection broke, or a review was answered otherwise than it should be.
pub(crate) fn drive(callers: &mut [Caller], reviews: &[Review], pace: &Pace) -> Result<Tally> {
    let course = Course { reviews, pace, next: AtomicUsize::new(0), began: OnceLock::new() };
    let course = &course;
    let answered = thread::scope(|scope| {
        let threads: Vec<_> =
            callers.iter_mut().map(|caller| scope.spawn(move || course.run(caller))).collect();
        let ended =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.collect::<Result<Vec<_>>>()
    })?;
    let began = course.began.get().context("nothing was asked for")?;
    Ok(Tally { answered: answered.concat(), seconds: began.elapsed().as_secs_f64() })
}

impl Course<'_> {
    /// Asks on one connection until nothing is left to ask for.
    fn run(&self, caller: &mut Caller) -> Result<Vec<Answered>> {
        let began = *self.began.get_or_init(Instant::now);
        let mut answered = Vec::new();
        while let Some((review, due)) = self.next(began) {
            caller.ask(review)?;
            answered.push(Answered { shape: review.shape, latency: due.elapsed().as_secs_f64() });
        }
        Ok(answered)
    }

    /// The next review and when it was to be asked for, at that time or later.
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

/// Timers of an asynchronous runtime are too coarse for this: they count in milliseconds.
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
    fn random_times_ascend_and_are_as_many_as_asked_for() {
        let Pace::Timed(times) = Pace::random(1_000.0, Duration::from_secs(20)) else {
            panic!("it has times")
        };
        assert!(times.is_sorted());
        assert!(times.len().abs_diff(20_000) < 600, "{} of 20000", times.len());
        let short = times.windows(2).filter(|pair| pair[1] - pair[0] < Duration::from_millis(1)).count();
        // 1 - 1/e of the gaps of a Poisson process are shorter than the mean.
        assert!(short.abs_diff(times.len() * 632 / 1000) < 600, "{short} of {}", times.len());
    }
}
