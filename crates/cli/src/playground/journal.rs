//! The journal of a playground. A thread of its own writes it, so that decisions do not wait.

use std::fs::File;
use std::io::{BufWriter, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, bail};
use bindery_controller::{DecisionOutcome, Journal, Key};
use bindery_core::Evidence;
use bindery_journal::{Record, Writer};
use bindery_policy::PolicyEvidence;

/// A journal that is being written.
pub(super) struct JournalFile {
    path: PathBuf,
    sink: Arc<Sink>,
    thread: JoinHandle<std::io::Result<()>>,
}

/// Sends records to the thread.
struct Sink(Sender<Record>);

impl JournalFile {
    /// Starts a journal in a new file.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let why = || format!("the journal {} cannot be started", path.display());
        let file = match File::create_new(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                bail!("the journal {} exists already: remove it, or name a new file", path.display())
            }
            file => file.with_context(why)?,
        };
        let writer = Writer::create(BufWriter::new(file)).with_context(why)?;
        let (sender, receiver) = channel();
        let thread =
            std::thread::Builder::new().name("journal".to_owned()).spawn(move || write(writer, &receiver));
        Ok(Self { path: path.to_owned(), sink: Arc::new(Sink(sender)), thread: thread.with_context(why)? })
    }

    /// The journal for a binder.
    pub(super) fn sink(&self) -> Arc<dyn Journal> {
        Arc::<Sink>::clone(&self.sink)
    }

    /// Waits until all records are written; every sink must have been dropped. If writing failed, the records
    /// before that are complete.
    pub(super) fn finish(self) -> Result<()> {
        drop(self.sink);
        let written = self.thread.join().expect("the journal's thread does not panic");
        written.with_context(|| format!("the journal {} is not complete", self.path.display()))
    }
}

fn write(mut writer: Writer<BufWriter<File>>, records: &Receiver<Record>) -> std::io::Result<()> {
    for record in records {
        writer.append(&record).inspect_err(|error| tracing::error!(%error, "the journal ends here"))?;
    }
    Ok(())
}

impl Journal for Sink {
    fn decided(
        &self,
        _key: &Key,
        evidence: Evidence,
        policies: Option<PolicyEvidence>,
        outcome: DecisionOutcome,
    ) {
        let refused = match outcome {
            DecisionOutcome::Passed => None,
            DecisionOutcome::Refused(why) | DecisionOutcome::Unproven(why) | DecisionOutcome::Stale(why) => {
                Some(why)
            }
        };
        // The thread has logged why it ended.
        let _ = self.0.send(Record { evidence, refused, policies });
    }
}
