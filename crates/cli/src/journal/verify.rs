//! `bindery journal verify`: whether a journal is what was written.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use bindery_journal::{Ending, Files, Gap, What};
use serde::Serialize;

use super::kept::check_kept;
use super::subject::time;
use crate::output::{Format, counted};

/// Check that a journal is what was written: that no byte was changed, and no file or record removed between
/// others.
///
/// Exits with status 1 if it is not. Records that were cut off at the end, and files that were removed at the
/// beginning, are found only by comparing digest and first file with a copy kept elsewhere.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A folder or a file of a journal.
    journal: PathBuf,
    /// Format of the result.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// What was found of the journal of one replica.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Verified {
    journal: String,
    /// Number of its first file, `None` in format 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_file: Option<u64>,
    files: usize,
    entries: u64,
    /// Records that its gaps tell of.
    lost: u64,
    gaps: Vec<String>,
    ends: &'static str,
    damage: Vec<String>,
    digest: String,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (journals, mut kept) = (Files::open_each(&arguments.journal)?, 0);
    let found = journals.into_iter().map(|(name, files)| verify(name, files, &mut kept));
    let found = found.collect::<Result<Vec<Verified>>>()?;
    let text: String = found.iter().map(Verified::text).collect();
    arguments.output.print(&found, |out| out.write_all(text.as_bytes()))?;
    let is_whole = found.iter().all(|journal| journal.damage.is_empty());
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads a journal; adds to `kept` how many bytes its report has.
fn verify(journal: String, mut files: Files, kept: &mut usize) -> Result<Verified> {
    let first_file = files.header().map(|header| header.number);
    let (mut entries, mut lost, mut gaps, mut damage) = (0, 0, Vec::new(), Vec::new());
    for entry in files.by_ref() {
        match entry {
            Ok(entry) => {
                entries += 1;
                if let What::Gap(gap) = &entry.what {
                    lost = gap.lost.saturating_add(lost);
                    let words = words(gap);
                    *kept += size_of::<String>() + words.len();
                    check_kept(*kept, format_args!("{journal}, entry {entries}"))?;
                    gaps.push(words);
                }
            }
            Err(error) => damage.push(format!("{:#}", anyhow::Error::new(error))),
        }
    }
    let ends = match files.ending() {
        _ if files.files_read() == 0 => "unknown: no file can be read",
        Ending::Ended => "its writer has ended it",
        Ending::Open => "its writer writes it still, or was killed",
        Ending::Torn => "inside a block: its writer writes it still, or was killed there",
    };
    let (read, digest) = (files.files_read(), files.digest().to_string());
    Ok(Verified { journal, first_file, files: read, entries, lost, gaps, ends, damage, digest })
}

/// A gap as `bindery journal` tells of it.
pub(super) fn words(Gap { lost, from_ms, to_ms }: &Gap) -> String {
    let lost = counted(*lost, "record is missing that was made", "records are missing that were made");
    format!("{lost} from {} to {}", time(*from_ms), time(*to_ms))
}

impl Verified {
    fn text(&self) -> String {
        let Self { journal, files, entries, ends, digest, .. } = self;
        let (entries, files) = (counted(*entries, "entry", "entries"), counted(*files, "file", "files"));
        let mut text = format!("{journal}: {entries} in {files}\n");
        if let Some(first) = self.first_file.filter(|first| *first > 1) {
            text += &format!("  begins with file {first}: older ones were removed\n");
        }
        for gap in &self.gaps {
            text += &format!("  gap: {gap}\n");
        }
        for damage in &self.damage {
            text += &format!("  damage: {damage}\n");
        }
        text + &format!("  end: {ends}\n  digest of the last: {digest}\n")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bindery_journal::{Entry, FolderWriter, Header, Rotation, Sink as _};

    use super::super::kept::KEPT_MAX;
    use super::*;

    #[test]
    fn given_a_full_report_another_gap_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let rotation = Rotation { size: 1 << 30, age: Duration::from_secs(3_600), keep: 1 << 32 };
        let mut writer = FolderWriter::new(folder.path(), rotation, Header::default());
        let gap = What::Gap(Gap { lost: 1, from_ms: 0, to_ms: 0 });
        writer.write(&Entry { at_ms: 0, what: gap }.encode().unwrap()).unwrap();
        let (name, files) = Files::open_each(folder.path()).unwrap().remove(0);
        let error = verify(name, files, &mut { KEPT_MAX }).err().unwrap().to_string();
        assert!(error.starts_with("replica-1, entry 1: the report of the journal "), "{error}");
    }
}
