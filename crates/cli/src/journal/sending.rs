//! Sends the journal from its files to an endpoint, from a thread of its own.
//!
//! Nothing waits for the endpoint: neither a decision nor the writer of the journal. What it has not accepted
//! stays in the files, and the position behind what it has accepted is kept beside them. So each record is
//! sent once or more often; its `id` tells a repetition. [`Worker`] is what the thread does.

mod batch;
#[cfg(test)]
mod tests;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bindery_registry::{Endpoint, Timeouts};
use http::Uri;
use prometheus_client::metrics::counter::Counter;
use rustix::process::nice;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::worker::{Pauses, Worker};

/// The lowest priority: decisions come first where processors are few.
const NICE: i32 = 19;
/// How long an endpoint may take. A batch has at most 1 MiB, but for a record that is larger.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(10),
    answer: Duration::from_secs(30),
    request: Duration::from_secs(60),
    operation: Duration::from_secs(60),
};

#[derive(clap::Args)]
pub(crate) struct SendingArguments {
    /// Send the journal as lines of JSON, as `bindery journal export` prints them, by POST to this URL:
    /// https://HOST/PATH, or http://localhost:PORT/PATH. What is not accepted yet stays in the files. Off by
    /// default.
    #[arg(long, value_name = "URL", env = "BINDERY_JOURNAL_SEND")]
    journal_send: Option<Uri>,
    /// A file with the token that is sent as `Authorization: Bearer`. It is read before each request.
    #[arg(long, value_name = "FILE", env = "BINDERY_JOURNAL_SEND_TOKEN")]
    journal_send_token: Option<PathBuf>,
    /// A file with the authorities, in PEM, that the endpoint's certificate is checked by. By default those
    /// of the system.
    #[arg(long, value_name = "FILE", env = "BINDERY_JOURNAL_SEND_CA")]
    journal_send_ca: Option<PathBuf>,
}

/// The thread that sends.
pub(crate) struct Sending {
    counts: Arc<SendingCounts>,
    /// Cancelled, it makes the thread send what is there without a pause, and end. It ends too when the
    /// endpoint does not accept that.
    pub(crate) ending: CancellationToken,
    ended: oneshot::Receiver<()>,
}

/// What was sent since the start.
#[derive(Debug, Default)]
pub(crate) struct SendingCounts {
    /// Records that the endpoint has accepted.
    pub(crate) records: Counter,
    /// Requests that it has not accepted.
    pub(crate) failures: Counter,
    /// Files that were removed or damaged before all of their records were sent.
    lost_files: AtomicU64,
    /// When the oldest record that waits was made, in milliseconds since the Unix epoch; 0 if none waits.
    oldest_ms: AtomicU64,
}

impl SendingArguments {
    /// Checks that the settings fit together and to the folder of the journal.
    pub(crate) fn check(&self, journal: Option<&Path>) -> Result<()> {
        let Self { journal_send, journal_send_token, journal_send_ca } = self;
        if journal_send.is_some() && journal.is_none() {
            bail!("--journal-send sends the files of a journal, and --journal is not given: name a folder");
        }
        let needs = [("--journal-send-token", journal_send_token), ("--journal-send-ca", journal_send_ca)];
        for (flag, value) in needs {
            if value.is_some() && journal_send.is_none() {
                bail!("{flag} is given without --journal-send: name the URL, or leave both out");
            }
        }
        Ok(())
    }

    /// Starts the thread; `None` without `--journal-send`.
    pub(crate) fn start(&self, journal: Option<&Path>) -> Result<Option<Sending>> {
        self.check(journal)?;
        let (Some(url), Some(folder)) = (&self.journal_send, journal) else { return Ok(None) };
        let authorities = self
            .journal_send_ca
            .as_ref()
            .map(|path| std::fs::read(path).with_context(|| format!("--journal-send-ca {}", path.display())));
        let endpoint = Endpoint::new(url.clone(), authorities.transpose()?.as_deref(), TIMEOUTS);
        let endpoint = endpoint.with_context(|| format!("--journal-send {url} cannot be used"))?;
        Sending::start(folder, endpoint, self.journal_send_token.clone(), Pauses::default()).map(Some)
    }
}

impl Sending {
    fn start(folder: &Path, endpoint: Endpoint, token: Option<PathBuf>, pauses: Pauses) -> Result<Self> {
        let (counts, ending) = (Arc::<SendingCounts>::default(), CancellationToken::new());
        let worker = Worker {
            folder: folder.to_owned(),
            endpoint,
            token,
            pauses,
            counts: Arc::clone(&counts),
            ending: ending.clone(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("journal-send".to_owned()).spawn(move || {
            // Dropped at the end, however that comes.
            let _end: oneshot::Sender<()> = end;
            // On Linux this is about the thread alone.
            if let Err(error) = nice(NICE) {
                tracing::debug!(%error, "the priority of the thread cannot be lowered");
            }
            runtime.block_on(worker.run());
        });
        thread.context("the thread that sends the journal cannot be started")?;
        Ok(Self { counts, ending, ended })
    }

    /// What was sent.
    pub(crate) fn counts(&self) -> Arc<SendingCounts> {
        Arc::clone(&self.counts)
    }

    /// Waits for the end of the thread.
    pub(crate) async fn ended(self) {
        // The sender is only dropped.
        _ = self.ended.await;
    }
}

impl SendingCounts {
    /// Files that were removed or damaged before all of their records were sent.
    pub(crate) fn lost_files(&self) -> u64 {
        self.lost_files.load(Ordering::Relaxed)
    }

    /// Seconds since the oldest record that waits was made, at a time in milliseconds since the Unix epoch; 0
    /// if none waits.
    pub(crate) fn lag_seconds(&self, now_ms: u64) -> u64 {
        match self.oldest_ms.load(Ordering::Relaxed) {
            0 => 0,
            oldest => now_ms.saturating_sub(oldest) / 1_000,
        }
    }
}
