//! Waiting for state that no event reports.

use std::time::Duration;

/// Polls by tokio's clock until `probe` returns a value; `None` after `patience`.
pub async fn poll<T>(
    every: Duration,
    patience: Duration,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> Option<T> {
    let polling = async {
        let mut ticks = tokio::time::interval(every);
        loop {
            ticks.tick().await;
            if let Some(value) = probe().await {
                return value;
            }
        }
    };
    tokio::time::timeout(patience, polling).await.ok()
}
