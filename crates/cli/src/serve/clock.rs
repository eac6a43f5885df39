//! Jumps of the system clock. Decisions take the API server's time where that is earlier, and the Lease is
//! measured by a monotonic clock; a jump is reported because it makes times in events, in the Lease, in the
//! log and in certificates wrong.

use std::time::{Duration, Instant, SystemTime};

use prometheus_client::metrics::counter::Counter;
use tokio::time::MissedTickBehavior;

/// How often the clocks are compared.
const EVERY: Duration = Duration::from_secs(1);
/// A smaller difference is not a jump: clocks are slewed, and a thread may be stopped between reading one
/// clock and the other.
const TOLERANCE: Duration = Duration::from_secs(1);

/// Watches the system clock. Clones share one count.
#[derive(Clone, Debug, Default)]
pub(super) struct ClockWatch(Counter);

/// A moment on both clocks.
#[derive(Clone, Copy)]
struct Moment {
    system: SystemTime,
    monotonic: Instant,
}

impl ClockWatch {
    /// How often the system clock has jumped.
    pub(super) fn jumps(&self) -> u64 {
        self.0.get()
    }

    /// Counts and logs every jump, for as long as it is polled.
    pub(super) async fn run(self) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Moment::now();
        loop {
            ticks.tick().await;
            let now = Moment::now();
            if let Some((direction, by)) = now.jump_since(last) {
                self.0.inc();
                tracing::warn!(?by, "the clock of this machine has jumped {direction}");
            }
            last = now;
        }
    }
}

impl Moment {
    fn now() -> Self {
        Self { system: SystemTime::now(), monotonic: Instant::now() }
    }

    /// Direction and size of the jump between an earlier moment and this one.
    fn jump_since(self, earlier: Self) -> Option<(&'static str, Duration)> {
        let expected = earlier.system + (self.monotonic - earlier.monotonic);
        let (direction, by) = match self.system.duration_since(expected) {
            Ok(by) => ("ahead", by),
            Err(error) => ("back", error.duration()),
        };
        (by > TOLERANCE).then_some((direction, by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_a_difference_from_the_time_that_has_passed() {
        let (hour, minute) = (Duration::from_secs(3_600), Duration::from_secs(60));
        let earlier = Moment::now();
        let start = earlier.system;
        for (system, jump) in [
            (start + minute, None),
            (start + minute + TOLERANCE, None),
            (start + hour, Some(("ahead", hour - minute))),
            (start - hour, Some(("back", hour + minute))),
            (start, Some(("back", minute))),
        ] {
            let later = Moment { system, monotonic: earlier.monotonic + minute };
            assert_eq!(later.jump_since(earlier), jump);
        }
    }
}
