//! Waiting for what the cluster in memory tells of, by its virtual clock: no test counts on how long
//! something takes.

use std::time::Duration;

use tokio::time::{Instant, interval};

use crate::double::Double;

/// How often it is looked whether something is so, in virtual time: no more than anything here takes.
const TICK: Duration = Duration::from_millis(5);
/// How often it is looked whether something happens, in virtual time.
const SECOND: Duration = Duration::from_secs(1);
/// Longer than any backoff: what has been still for so long has come to its end.
const STILL: Duration = Duration::from_secs(600);
/// In virtual time; what has not come by then never comes.
const PATIENCE: Duration = Duration::from_secs(7_200);

impl Double {
    /// Waits until it is so.
    ///
    /// # Panics
    ///
    /// It does not become so; the message tells what happened instead.
    pub(crate) async fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let (begin, mut ticks) = (Instant::now(), interval(TICK));
        while !is_so() {
            assert!(begin.elapsed() < PATIENCE, "{what}: not so after {:?}", self.story());
            ticks.tick().await;
        }
    }

    /// Waits until nothing is asked for, written, decided or told any more.
    ///
    /// # Panics
    ///
    /// It goes on for ever.
    pub(crate) async fn rest(&self) {
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
