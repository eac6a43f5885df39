//! Whether the time of day goes on as time passes. Nothing is decided by it, and the Lease is measured by
//! time that passes; but who reads times in events, in the Lease and in the log, or a certificate's, is to
//! know that they were wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tokio::time::MissedTickBehavior;

/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// A difference that is no jump: clocks are slewed, and a thread may be stopped between looking at one and
/// the other.
const TOLERATED: Duration = Duration::from_secs(1);

/// Looks at the clock of this machine. Clones count together.
#[derive(Clone, Debug, Default)]
pub(super) struct ClockWatch(Arc<AtomicU64>);

/// A moment on both clocks.
#[derive(Clone, Copy)]
struct Moment {
    of_day: SystemTime,
    passed: Instant,
}

impl ClockWatch {
    /// How often the time of day has jumped.
    pub(super) fn jumps(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Looks, and tells of every jump, for as long as it is polled.
    pub(super) async fn run(self) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Moment::now();
        loop {
            ticks.tick().await;
            let now = Moment::now();
            if let Some((direction, by)) = now.jump_since(last) {
                self.0.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(?by, "the clock of this machine has jumped {direction}");
            }
            last = now;
        }
    }
}

impl Moment {
    fn now() -> Self {
        Self { of_day: SystemTime::now(), passed: Instant::now() }
    }

    /// Where to and how far the time of day has jumped between an earlier moment and this one.
    fn jump_since(self, earlier: Self) -> Option<(&'static str, Duration)> {
        let expected = earlier.of_day + (self.passed - earlier.passed);
        let (direction, by) = match self.of_day.duration_since(expected) {
            Ok(by) => ("ahead", by),
            Err(error) => ("back", error.duration()),
        };
        (by > TOLERATED).then_some((direction, by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_what_is_more_than_the_time_that_has_passed() {
        let (hour, minute) = (Duration::from_secs(3_600), Duration::from_secs(60));
        let earlier = Moment::now();
        let later = |of_day| Moment { of_day, passed: earlier.passed + minute };
        let jump = |of_day| later(of_day).jump_since(earlier);
        assert_eq!(jump(earlier.of_day + minute), None);
        assert_eq!(jump(earlier.of_day + minute + TOLERATED), None);
        assert_eq!(jump(earlier.of_day + hour), Some(("ahead", hour - minute)));
        assert_eq!(jump(earlier.of_day - hour), Some(("back", hour + minute)));
        assert_eq!(jump(earlier.of_day), Some(("back", minute)));
    }
}
