//! The journal that `bindery serve` and `bindery playground` write.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bindery_controller::{DecidedRecord, DifferenceRecord, Journal, SwapRecord, WriteRecord};
use bindery_host::FUEL_SCHEDULE;
use bindery_journal::{
    Appender, ChainDigest, Counts, DecisionSummary, Differed, FolderWriter, Header, JournalWriter, Record,
    Redacted, Redactor, Rotation, Swap, What, Wrote,
};
use bindery_policy::ShadowAnswer;
use bindery_store::Kind;

use super::redaction::RedactionArguments;
use crate::settings;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;
/// How long the end of the process waits for the last records to be written, if the disk does not answer.
const END_MAX: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub(crate) struct JournalArguments {
    /// Record every decision with its evidence, every write and every change of engine and policies in files
    /// in this folder, for `bindery replay` and `bindery journal`. The folder is created if it is missing; a
    /// journal that is there is continued. Off by default.
    #[arg(long, value_name = "FOLDER", env = "BINDERY_JOURNAL")]
    pub(crate) journal: Option<PathBuf>,
    /// MiB after which a file of the journal is ended and the next one begun.
    #[arg(long, value_name = "MIB", env = "BINDERY_JOURNAL_SIZE", default_value_t = 64,
          value_parser = settings::whole::<u64>(1..=65_536))]
    journal_size: u64,
    /// Hours after which a file of the journal is ended and the next one begun.
    #[arg(long, value_name = "HOURS", env = "BINDERY_JOURNAL_AGE", default_value_t = 24,
          value_parser = settings::whole::<u64>(1..=8_760))]
    journal_age: u64,
    /// MiB that all files of this replica's journal may have together; the oldest are removed. At least twice
    /// the size of one.
    #[arg(long, value_name = "MIB", env = "BINDERY_JOURNAL_KEEP", default_value_t = 1_024,
          value_parser = settings::whole::<u64>(2..=16_777_216))]
    journal_keep: u64,
    #[command(flatten)]
    redaction: RedactionArguments,
}

/// A journal that is being written.
pub(crate) struct Recording {
    folder: PathBuf,
    writer: JournalWriter,
    redactor: Option<Arc<Redactor>>,
}

/// Hands what a binder records to the journal.
struct JournalSink {
    appender: Appender,
    redactor: Option<Arc<Redactor>>,
}

impl JournalArguments {
    /// Checks that the settings fit together, and that the key of redaction can be read.
    pub(crate) fn check(&self) -> Result<()> {
        self.redactor().map(drop)
    }

    /// Checks the settings, and reads the key; `None` if nothing is redacted.
    fn redactor(&self) -> Result<Option<Redactor>> {
        let Self { journal_size, journal_keep, .. } = self;
        if *journal_keep < 2 * journal_size {
            bail!(
                "--journal-keep {journal_keep} is less than twice --journal-size {journal_size}: keep more, \
                 or give a smaller size"
            );
        }
        self.redaction.redactor()
    }

    /// Starts the journal; `None` without `--journal`. A full disk is not an error: then binding goes on and
    /// records are lost, as later.
    pub(crate) fn start(&self, replica: &str, mode: &str) -> Result<Option<Recording>> {
        let Some(folder) = &self.journal else { return Ok(None) };
        let Self { journal_size, journal_age, journal_keep, .. } = self;
        let redactor = self.redactor()?.map(Arc::new);
        let rotation = Rotation {
            size: journal_size * MIB,
            age: Duration::from_secs(journal_age * 3_600),
            keep: journal_keep * MIB,
        };
        let header = Header {
            number: 1,
            previous: ChainDigest::default(),
            began_ms: 0,
            replica: replica.to_owned(),
            mode: mode.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            fuel_schedule: FUEL_SCHEDULE.to_owned(),
            redaction: redactor.as_deref().map(Redactor::redaction).cloned(),
        };
        let mut files = FolderWriter::new(folder, rotation, header);
        let why = || format!("--journal {} cannot be written; name a folder that can", folder.display());
        match files.take() {
            Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                tracing::error!(%error, "the journal cannot be written yet");
            }
            taken => taken.with_context(why)?,
        }
        let writer = JournalWriter::start(files).context("the thread of the journal cannot be started")?;
        Ok(Some(Recording { folder: folder.clone(), writer, redactor }))
    }
}

impl Recording {
    /// The journal for a binder.
    pub(crate) fn sink(&self) -> Arc<dyn Journal> {
        Arc::new(JournalSink { appender: self.writer.appender(), redactor: self.redactor.clone() })
    }

    /// For its counts.
    pub(crate) fn appender(&self) -> Appender {
        self.writer.appender()
    }

    /// Writes the last records. An error says how many are lost.
    pub(crate) fn finish(self) -> Result<()> {
        let Counts { made, written, .. } = self.writer.finish(END_MAX);
        let (folder, lost) = (self.folder.display(), made - written);
        if lost > 0 {
            bail!("the journal in {folder} is not complete: {lost} of {made} records are lost");
        }
        Ok(())
    }
}

impl JournalSink {
    fn append(&self, mut what: What) {
        if let Some(redactor) = &self.redactor {
            redactor.redact(&mut what);
        }
        self.appender.append(what);
    }
}

impl Journal for JournalSink {
    fn decided(&self, decided: DecidedRecord) {
        let DecidedRecord { evidence, chain, policies, fuel, reads, guard } = decided;
        let (chain, redacted) = (Some(chain), Redacted::default());
        let record = Record { evidence, guard, chain, policies, fuel, reads, redacted };
        self.append(What::Decision(Box::new(record)));
    }

    fn wrote(&self, WriteRecord { write, kind, object, uid, version, result }: WriteRecord<'_>) {
        self.append(What::Write(Wrote {
            write: write.to_owned(),
            object: object.to_owned(),
            claim: kind == Kind::Claim,
            uid: uid.map(str::to_owned),
            version: version.map(ToString::to_string),
            result: result.map(|version| version.map(ToString::to_string)),
        }));
    }

    fn differed(&self, DifferenceRecord { shadow, engine, chain, difference }: DifferenceRecord<'_>) {
        let told = |ShadowAnswer { answer, reason }: &ShadowAnswer| DecisionSummary {
            answer: answer.to_string(),
            reason: reason.to_string(),
        };
        let (kind, object) = difference.object.split_once(' ').unwrap_or(("", &difference.object));
        self.append(What::Difference(Box::new(Differed {
            kind: shadow.kind().to_owned(),
            shadow: shadow.name.to_string(),
            engine: engine.to_owned(),
            chain: chain.to_owned(),
            object: object.to_owned(),
            claim: kind == "pvc",
            now: difference.time,
            difference: difference.kind.name().to_owned(),
            active: told(&difference.active),
            instead: told(&difference.shadow),
        })));
    }

    fn swapped(&self, swapped: SwapRecord<'_>) {
        self.append(What::Swap(match swapped {
            SwapRecord::Engine { from, to } => Swap::Engine { from: from.to_owned(), to: to.to_owned() },
            SwapRecord::Policies { from, to } => Swap::Policies { from: from.to_owned(), to: to.to_owned() },
        }));
    }
}
