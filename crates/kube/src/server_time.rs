//! The API server's clock, as the headers of its answers tell it.

use std::sync::Arc;

use bindery_core::Timestamp;
use http::HeaderMap;
use http::header::DATE;
use jiff::fmt::rfc2822;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The API server's time. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct ServerTime {
    /// The `Date` of the last answer, and when it came.
    last: Arc<Mutex<Option<(Timestamp, Instant)>>>,
}

impl ServerTime {
    /// Notes the time of an answer that has just come.
    pub(crate) fn note(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| rfc2822::parse(date.to_str().ok()?).ok());
        if let Some(date) = date {
            *self.last.lock() = Some((date.timestamp().as_second(), Instant::now()));
        }
    }

    /// The time now: that of the last answer and what has passed since, by a clock that does not jump. `None`
    /// before the first answer.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        let (date, at) = (*self.last.lock())?;
        Some(date.saturating_add_unsigned(at.elapsed().as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_goes_on_from_the_last_answer_that_has_a_date() {
        let time = ServerTime::default();
        assert_eq!(time.now(), None);
        for (date, now) in [("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777), ("yesterday", 784_111_787)] {
            time.note(&HeaderMap::from_iter([(DATE, HeaderValue::from_static(date))]));
            assert_eq!(time.now(), Some(now));
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        assert_eq!(time.now(), Some(784_111_797));
    }
}
