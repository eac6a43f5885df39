//! The time of the simulated API server.

use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z, the start of a virtual clock, in seconds since 1970.
const VIRTUAL_START_SECONDS: i64 = 1_767_225_600;

/// The source of the simulator's time.
///
/// A virtual clock follows tokio's clock: under `tokio::time::pause` only the runtime advances it, so a run
/// repeats exactly.
#[derive(Clone, Debug)]
pub enum Clock {
    /// 2026-01-01T00:00:00Z plus the time on tokio's clock since `start`.
    Virtual {
        /// The start of the clock.
        start: Instant,
    },
    /// The machine's clock, for servers that people use.
    Real,
}

impl Default for Clock {
    /// A virtual clock that starts now.
    fn default() -> Self {
        Clock::Virtual { start: Instant::now() }
    }
}

impl Clock {
    /// The current instant.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Clock::Virtual { start } => {
                let base = Timestamp::constant(VIRTUAL_START_SECONDS, 0);
                base.checked_add(start.elapsed()).unwrap_or(Timestamp::MAX)
            }
            Clock::Real => Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::MAX),
        }
    }

    /// The current instant as a `metav1.Time`.
    pub(crate) fn now_text(&self) -> String {
        seconds_text(self.now())
    }
}

/// Writes an instant as `metav1.Time` does: RFC 3339 in UTC, fractions cut off.
pub(crate) fn seconds_text(instant: Timestamp) -> String {
    instant.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Writes an instant as `metav1.MicroTime` does: RFC 3339 in UTC with six digits.
pub(crate) fn micros_text(instant: Timestamp) -> String {
    instant.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The instant `seconds` later, or earlier if negative. Saturates, as clients may send any number.
pub(crate) fn after(instant: Timestamp, seconds: i64) -> Timestamp {
    let end = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
    instant.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(end)
}

/// Reads RFC 3339.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    // jiff also accepts a space instead of the T.
    if text.as_bytes().get(10) != Some(&b'T') {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_virtual_clock_follows_tokio() {
        let clock = Clock::default();
        assert_eq!(clock.now_text(), "2026-01-01T00:00:00Z");
        tokio::time::advance(Duration::from_millis(61_500)).await;
        assert_eq!(clock.now_text(), "2026-01-01T00:01:01Z");
        assert_eq!(micros_text(clock.now()), "2026-01-01T00:01:01.500000Z");
    }

    #[test]
    fn a_sum_of_times_saturates() {
        let instant = parse("2026-01-01T00:00:00Z").unwrap();
        assert_eq!(seconds_text(after(instant, 61)), "2026-01-01T00:01:01Z");
        assert_eq!(seconds_text(after(instant, -1)), "2025-12-31T23:59:59Z");
        assert_eq!(after(instant, i64::MAX), Timestamp::MAX);
        assert_eq!(after(instant, i64::MIN), Timestamp::MIN);
    }

    #[test]
    fn only_rfc_3339_is_parsed() {
        assert!(parse("2026-01-01T00:00:00Z").is_some());
        assert!(parse("2026-01-01T02:00:00.5+02:00").is_some());
        assert!(parse("2026-01-01 00:00:00Z").is_none());
        assert!(parse("yesterday").is_none());
    }
}
