//! What of a journal is redacted, and by which key.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use bindery_journal::{Redaction, Redactor};

/// The minimum length of the key in bytes: that of an HMAC-SHA256 digest, so that it cannot be guessed.
const KEY_MIN: usize = 32;
/// Most bytes of the keys of annotations and labels together. The head of each file lists them, and has
/// 16 KiB.
const LISTED_MAX: usize = 8 << 10;
/// Annotations that every decision reads: no decision could be replayed without their values.
const READ_ALWAYS: [&str; 4] = [
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
    "volume.beta.kubernetes.io/",
    "volume.alpha.kubernetes.io/",
];
/// End of the prefix of Bindery's own annotations.
const OWN: &str = "bindery.dev/";

#[derive(clap::Args)]
pub(super) struct RedactionArguments {
    /// Write digests in place of the values of this annotation of claims and volumes. Repeat it for several,
    /// or separate them by commas.
    #[arg(long, value_name = "KEY", env = "BINDERY_JOURNAL_REDACT_ANNOTATION", value_delimiter = ',')]
    journal_redact_annotation: Vec<String>,
    /// Write digests in place of the values of this label of claims, volumes, namespaces and nodes. Repeat it
    /// for several, or separate them by commas.
    #[arg(long, value_name = "KEY", env = "BINDERY_JOURNAL_REDACT_LABEL", value_delimiter = ',')]
    journal_redact_label: Vec<String>,
    /// Write digests in place of the names of namespaces.
    #[arg(long, value_name = "true|false", env = "BINDERY_JOURNAL_REDACT_NAMESPACES",
          default_value_t = false, action = clap::ArgAction::Set)]
    journal_redact_namespaces: bool,
    /// The key of the digests: a file of at least 32 random bytes. Without the key no value can be guessed
    /// from its digest. Equal values have equal digests under one key.
    #[arg(long, value_name = "FILE", env = "BINDERY_JOURNAL_REDACT_KEY_FILE")]
    journal_redact_key_file: Option<PathBuf>,
}

impl RedactionArguments {
    /// Reads the key; `None` if nothing is redacted.
    pub(super) fn redactor(&self) -> Result<Option<Redactor>> {
        let Self { journal_redact_annotation, journal_redact_label, journal_redact_namespaces, .. } = self;
        // No key has a blank, and people write one after a comma.
        let keys = |given: &[String]| given.iter().map(|key| key.trim().to_owned()).collect();
        let (annotations, labels) = (keys(journal_redact_annotation), keys(journal_redact_label));
        let redaction =
            Redaction { key: String::new(), annotations, labels, namespaces: *journal_redact_namespaces };
        let is_nothing = Redaction::default() == redaction;
        let path = match &self.journal_redact_key_file {
            None if is_nothing => return Ok(None),
            None => bail!(
                "--journal-redact-key-file is missing: values are redacted by digests, which need a key; \
                 name a file of at least {KEY_MIN} random bytes"
            ),
            Some(path) if is_nothing => bail!(
                "--journal-redact-key-file {} is given, and nothing to redact: give \
                 --journal-redact-annotation, --journal-redact-label or --journal-redact-namespaces=true",
                path.display()
            ),
            Some(path) => path,
        };
        let is_read = |key: &&String| READ_ALWAYS.iter().any(|prefix| key.starts_with(prefix)) || is_own(key);
        if let Some(key) = redaction.annotations.iter().find(is_read) {
            bail!(
                "--journal-redact-annotation {key}: each decision reads this annotation, so none could be \
                 replayed; leave it out"
            );
        }
        let listed: usize = redaction.annotations.iter().chain(&redaction.labels).map(String::len).sum();
        if listed > LISTED_MAX {
            bail!(
                "--journal-redact-annotation and --journal-redact-label have {listed} bytes together, and at \
                 most {LISTED_MAX} are allowed; name fewer keys"
            );
        }
        let at = || format!("--journal-redact-key-file {}", path.display());
        let key = std::fs::read(path).with_context(|| format!("{} cannot be read", at()))?;
        if key.len() < KEY_MIN {
            let bytes = key.len();
            bail!("{} has {bytes} bytes; give a file of at least {KEY_MIN} random bytes", at());
        }
        Ok(Some(Redactor::new(&key, redaction)))
    }
}

fn is_own(key: &str) -> bool {
    key.split_inclusive('/').next().is_some_and(|prefix| prefix.ends_with(OWN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::arguments_of;

    #[test]
    fn given_blanks_between_the_keys_of_labels_each_is_redacted() {
        let key = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&key, [7; KEY_MIN]).unwrap();
        let file = format!("--journal-redact-key-file={}", key.path().display());
        let given: RedactionArguments = arguments_of(&["--journal-redact-label=team, owner", &file]);
        let redactor = given.redactor().unwrap().unwrap();
        assert!(redactor.redaction().labels.iter().eq(["owner", "team"]), "{:?}", redactor.redaction());
    }
}
