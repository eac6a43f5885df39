//! Waiting for a condition by tokio's paused clock, which jumps to the next timer: no test takes real time.

use std::time::Duration;

use tokio::time::{Instant, interval};

use super::InMemoryApi;

/// How often a condition is checked, in virtual time.
const TICK: Duration = Duration::from_millis(5);
/// How often activity is checked, in virtual time.
const SECOND: Duration = Duration::from_secs(1);
/// Longer than any backoff: without activity for this long, nothing follows.
const STILL: Duration = Duration::from_secs(600);
/// How long a test waits at most, in virtual time.
const PATIENCE: Duration = Duration::from_secs(7_200);

impl<X> InMemoryApi<X> {
    /// Waits until the condition holds.
    ///
    /// # Panics
    ///
    /// It never does; the message names it and has the story.
    pub async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let (begin, mut ticks) = (Instant::now(), interval(TICK));
        while !holds() {
            assert!(begin.elapsed() < PATIENCE, "not reached: {what}, after {:?}", self.story());
            ticks.tick().await;
        }
    }

    /// Waits until all activity has ended.
    ///
    /// # Panics
    ///
    /// There always is.
    pub async fn rest(&self) {
        let (begin, mut ticks) = (Instant::now(), interval(SECOND));
        let (mut last, mut since) = (self.activity(), Instant::now());
        while since.elapsed() < STILL {
            assert!(begin.elapsed() < PATIENCE, "no rest after {:?}", self.story());
            ticks.tick().await;
            let now = self.activity();
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
    }
}
