//! Lost records of the journal: an event on the Lease, and metrics.

use std::fmt;
use std::time::Duration;

use bindery_journal::{Appender, Counts};
use bindery_kube::{Clock, ForeignWriterMark};

/// `reason` of the event.
const REASON: &str = "JournalRecordsLost";
/// How often the count is looked at; no request is sent for that.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Shortest time between two events.
const TELL_EVERY: Duration = Duration::from_secs(600);

/// The journal of a replica; `None` if it is off.
#[derive(Clone)]
pub(super) struct JournalCounts(pub(super) Option<Appender>);

impl JournalCounts {
    /// The counts; zeros if the journal is off.
    pub(super) fn get(&self) -> Counts {
        self.0.as_ref().map(Appender::counts).unwrap_or_default()
    }
}

impl fmt::Debug for JournalCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Reports by events on the Lease that records of the journal are lost, for as long as it is polled. The log
/// has said why.
pub(super) async fn report_losses(journal: Appender, mark: ForeignWriterMark, replica: String, clock: Clock) {
    let mut told = 0;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let lost = journal.counts().lost;
        if lost == told {
            continue;
        }
        let message = format!(
            "replica {replica}: {lost} records of the decision journal are lost since its start; binding \
             goes on"
        );
        match mark.emit(REASON, &message, clock()).await {
            Ok(()) => told = lost,
            Err(error) => tracing::warn!(%error, reason = REASON, "an event cannot be created"),
        }
        tokio::time::sleep(TELL_EVERY).await;
    }
}
