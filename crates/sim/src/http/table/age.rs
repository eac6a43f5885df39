//! Ages in the words of kubectl.

use crate::clock::{self, Clock};

/// The time since an instant as `duration.HumanDuration` of apimachinery writes it.
pub(super) fn since(instant: &str, clock: &Clock) -> String {
    match clock::parse(instant) {
        Some(instant) => human(clock.now().duration_since(instant).as_secs_f64()),
        None => "<unknown>".to_owned(),
    }
}

fn human(duration_seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "whole seconds are wanted, as Go's int() gives them")]
    let seconds = duration_seconds as i64;
    // Up to two seconds in the future count as a difference between clocks.
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let with_rest = |whole: i64, unit: &str, rest: i64, rest_unit: &str| {
        if rest == 0 { format!("{whole}{unit}") } else { format!("{whole}{unit}{rest}{rest_unit}") }
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        with_rest(minutes, "m", seconds % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        with_rest(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        with_rest(days, "d", hours % 24, "h")
    } else if days < 365 * 2 {
        format!("{days}d")
    } else if days < 365 * 8 {
        with_rest(days / 365, "y", days % 365, "d")
    } else {
        format!("{}y", days / 365)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_as_upstream_prints_them() {
        for (seconds, text) in [
            (-5.0, "<invalid>"),
            (-1.9, "0s"),
            (0.4, "0s"),
            (119.0, "119s"),
            (120.0, "2m"),
            (599.0, "9m59s"),
            (3600.0, "60m"),
            (10_800.0, "3h"),
            (12_300.0, "3h25m"),
            (100_000.0, "27h"),
            (200_000.0, "2d7h"),
            (864_000.0, "10d"),
            (70_000_000.0, "2y80d"),
            (400_000_000.0, "12y"),
        ] {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }
}
