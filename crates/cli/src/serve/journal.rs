//! Lost records of the journal: an event on the Lease, and metrics.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bindery_journal::{Appender, Counts};
use bindery_kube::{Clock, ForeignWriterMark};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::journal::recording::Recording;
use crate::journal::sending::SendingCounts;

/// `reason` of the event.
const REASON: &str = "JournalRecordsLost";
/// How often the count is looked at; no request is sent for that.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Shortest time between two events.
const TELL_EVERY: Duration = Duration::from_secs(600);
/// How long a replica that ends waits until the last records are sent. What is not, is sent at the next start
/// from the same folder.
const SENDING_MAX: Duration = Duration::from_secs(5);

/// What tells of the journal of a replica; `None` if it is off.
#[derive(Clone)]
pub(super) struct JournalCounts {
    pub(super) written: Option<Appender>,
    pub(super) sent: Option<Arc<SendingCounts>>,
}

impl JournalCounts {
    /// The counts; zeros if the journal is off.
    pub(super) fn get(&self) -> Counts {
        self.written.as_ref().map(Appender::counts).unwrap_or_default()
    }
}

impl fmt::Debug for JournalCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalCounts").field("written", &self.get()).field("sent", &self.sent).finish()
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

/// Writes the last records.
pub(super) async fn end(recording: Recording) {
    match tokio::task::spawn_blocking(|| recording.finish()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!("{error:#}"),
        Err(error) => tracing::error!(%error, "the end of the journal has failed"),
    }
}

/// Sends the last records, after [`end`].
pub(super) async fn end_sending(ending: &CancellationToken, ended: JoinHandle<()>) {
    ending.cancel();
    if timeout(SENDING_MAX, ended).await.is_err() {
        tracing::warn!("the endpoint of the journal is slow; what is not sent yet stays in the files");
    }
}

#[cfg(test)]
mod tests {
    use bindery_journal::What;
    use bindery_kit::poll;
    use bindery_kube::{ApiClient, system_clock};
    use bindery_sim::{Sim, SimOptions};
    use serde_json::{Value, json};

    use super::*;
    use crate::journal::recording::JournalArguments;
    use crate::serve::lease::LeaseArguments;
    use crate::tests::arguments_of;

    /// Waits for this number of events, by the clock of the runtime.
    async fn until_events(sim: &Sim, count: usize) -> Option<Vec<Value>> {
        let events = async || Some(sim.objects("events")).filter(|events| events.len() == count);
        poll(LOOK_EVERY, 2 * TELL_EVERY, events).await
    }

    #[tokio::test(start_paused = true)]
    async fn given_lost_records_events_tell_their_number_and_none_repeats_it() {
        let sim = Sim::new(SimOptions::default());
        let client = ApiClient::from(kube::Client::new(sim.service(), "default"));
        let lease = arguments_of::<LeaseArguments>(&["--lease-namespace=default", "--lease-name=bindery"]);
        let folder = tempfile::tempdir().unwrap();
        let journal = ["--journal", folder.path().to_str().unwrap()];
        let recording = arguments_of::<JournalArguments>(&journal).start("first", "own").unwrap().unwrap();
        let appender = recording.appender();
        recording.finish().unwrap();
        let mark = lease.mark(&client);
        tokio::spawn(report_losses(appender.clone(), mark, "first".to_owned(), system_clock()));
        assert_eq!(until_events(&sim, 1).await, None);

        // A journal that has ended writes no record.
        appender.append(What::End);
        // The Lease cannot be read yet.
        assert_eq!(until_events(&sim, 1).await, None);
        let metadata = json!({"name": "bindery", "namespace": "default"});
        sim.seed([json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata})])
            .unwrap();
        let told = until_events(&sim, 1).await.unwrap().remove(0);
        assert_eq!((&told["reason"], &told["type"]), (&json!(REASON), &json!("Warning")));
        let of = &told["involvedObject"];
        assert_eq!((&of["kind"], &of["name"]), (&json!("Lease"), &json!("bindery")));
        let lost =
            "replica first: 1 records of the decision journal are lost since its start; binding goes on";
        assert_eq!(told["message"], lost);
        assert_eq!(until_events(&sim, 2).await, None);
        appender.append(What::End);
        let all = until_events(&sim, 2).await.unwrap();
        assert!(all.iter().any(|told| told["message"] == lost.replace('1', "2")), "{all:?}");
    }
}
