//! Metrics of the journal.

use std::fmt::Error;

use bindery_journal::Counts;
use jiff::Timestamp;
use prometheus_client::encoding::DescriptorEncoder;

use super::{counters, gauge, gauge_if};
use crate::serve::journal::JournalCounts;

/// Metrics of the journal; zeros if it is off.
pub(super) fn encode(journal: &JournalCounts, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let Counts { made, written, lost, bytes, removed, free, failing } = journal.get();
    counters(
        encoder,
        [
            ("journal_records_made", "Records made for the journal", made),
            ("journal_records_written", "Records that are in the files of the journal", written),
            ("journal_records_lost", "Records that are not in the journal and never will be", lost),
            ("journal_bytes", "Bytes written to the journal", bytes),
            ("journal_files_removed", "Oldest files of the journal that were removed", removed),
        ],
    )?;
    gauge(encoder, "journal_failing", "Whether the last write failed", usize::from(failing))?;
    // Without a journal it has no sample.
    let help = "Bytes that are free where the journal is";
    gauge_if(encoder, "journal_free_bytes", help, free)?;
    let sent = journal.sent.clone().unwrap_or_default();
    counters(
        encoder,
        [
            ("journal_records_sent", "Records that the endpoint of the journal accepted", sent.records.get()),
            ("journal_send_failures", "Requests that it did not accept", sent.failures.get()),
            (
                "journal_files_unsent",
                "Files that were removed or damaged before all of their records were sent",
                sent.lost_files(),
            ),
        ],
    )?;
    let lag = sent.lag_seconds(u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default());
    let help = "Age of the oldest record that was not accepted yet";
    gauge(encoder, "journal_send_lag_seconds", help, usize::try_from(lag).unwrap_or(usize::MAX))
}
