//! Records of kinds that this version does not know.

use std::collections::BTreeMap;

use bindery_journal::Header;
use serde::Serialize;

use crate::output::counted;

/// How many records are of kinds that this version does not know, by the version of Bindery that wrote them.
#[derive(Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Unknown(BTreeMap<String, u64>);

impl Unknown {
    /// Counts a record of the file with this header.
    pub(crate) fn add(&mut self, header: Option<&Header>) {
        let version = header.map_or_else(String::new, |header| header.version.clone());
        *self.0.entry(version).or_default() += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A line for each version; empty if there is none. `remedy` is what to do with that version.
    pub(crate) fn lines(&self, remedy: &str) -> String {
        let line = |(version, records): (&String, &u64)| {
            let passed_over = counted(
                *records,
                "record is of a kind that this version does not know, and was passed over",
                "records are of kinds that this version does not know, and were passed over",
            );
            format!("{passed_over}: {remedy} with Bindery {version}, which wrote the journal\n")
        };
        self.0.iter().map(line).collect()
    }
}
