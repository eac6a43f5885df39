//! The time of the simulated API server.

use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z, in seconds since 1970: the instant at which a virtual clock starts unless told
/// otherwise.
const DEFAULT_BASE_SECONDS: i64 = 1_767_225_600;

/// Where the simulator takes the time from.
///
/// A virtual clock follows tokio's: under `tokio::time::pause` it stands still until the runtime advances it,
/// so a run repeats exactly.
#[derive(Clone, Debug)]
pub enum Clock {
    /// `base` plus what tokio's clock has advanced since `start`.
    Virtual {
        /// The instant that the clock showed at `start`, in seconds since 1970.
        base_seconds: i64,
        /// tokio's instant at which the clock was started.
        start: Instant,
    },
    /// The machine's clock, for servers that people talk to.
    Real,
}

impl Default for Clock {
    fn default() -> Self {
        Clock::starting_at(DEFAULT_BASE_SECONDS)
    }
}

impl Clock {
    /// A virtual clock that shows `base_seconds` (seconds since 1970) now.
    pub fn starting_at(base_seconds: i64) -> Self {
        Clock::Virtual { base_seconds, start: Instant::now() }
    }

    /// The present instant.
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::Virtual { base_seconds, start } => {
                let elapsed = start.elapsed();
                let nanos = i32::try_from(elapsed.subsec_nanos()).unwrap_or(0);
                let seconds = base_seconds.saturating_add_unsigned(elapsed.as_secs());
                Timestamp::new(seconds, nanos).unwrap_or(Timestamp::MAX)
            }
            Clock::Real => Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::MAX),
        }
    }

    /// The present as `metav1.Time` writes it: RFC 3339, whole seconds.
    pub fn now_text(&self) -> String {
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

/// So many seconds after an instant, or before it: at most the last instant that there is, at least the
/// first. Clients may ask for any number.
pub(crate) fn after(instant: Timestamp, seconds: i64) -> Timestamp {
    let end = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
    instant.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(end)
}

/// Reads RFC 3339.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    // jiff reads more than RFC 3339 (a space for the T); Kubernetes does not.
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
    async fn virtual_time_follows_tokio() {
        let clock = Clock::default();
        assert_eq!(clock.now_text(), "2026-01-01T00:00:00Z");
        tokio::time::advance(Duration::from_millis(61_500)).await;
        assert_eq!(clock.now_text(), "2026-01-01T00:01:01Z");
        assert_eq!(micros_text(clock.now()), "2026-01-01T00:01:01.500000Z");
    }

    #[test]
    fn time_does_not_run_over() {
        let instant = parse("2026-01-01T00:00:00Z").unwrap();
        assert_eq!(seconds_text(after(instant, 61)), "2026-01-01T00:01:01Z");
        assert_eq!(seconds_text(after(instant, -1)), "2025-12-31T23:59:59Z");
        assert_eq!(after(instant, i64::MAX), Timestamp::MAX);
        assert_eq!(after(instant, i64::MIN), Timestamp::MIN);
    }

    #[test]
    fn only_rfc_3339_is_read() {
        assert!(parse("2026-01-01T00:00:00Z").is_some());
        assert!(parse("2026-01-01T02:00:00.5+02:00").is_some());
        assert!(parse("2026-01-01 00:00:00Z").is_none());
        assert!(parse("yesterday").is_none());
    }
}
