//! Delays of a simulated cluster. The clock is virtual, so nothing waits for them.

use std::time::Duration;

use tokio::time::Instant;

/// Lets time pass.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Lets time pass until then.
pub(crate) async fn pass_until(then: Instant) {
    tokio::time::sleep_until(then).await;
}
