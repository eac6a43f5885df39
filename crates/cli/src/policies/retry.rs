//! When what has failed is tried again.

use std::time::Duration;

/// The shortest pause.
const MIN: Duration = Duration::from_secs(10);
/// The longest pause.
pub(super) const MAX: Duration = Duration::from_secs(600);

/// The pause after a failure that had this many before it: doubled by each.
pub(super) fn pause(failures: u32) -> Duration {
    MIN.saturating_mul(1 << failures.min(10)).min(MAX)
}
