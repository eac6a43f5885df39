//! Standard output.

use std::fmt::Display;
use std::io::{self, BufWriter, ErrorKind, Write};

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;

use crate::yaml;

/// The values of `--output`.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

impl Format {
    /// Prints a result: for people as `table` writes it, else as it serializes.
    pub(crate) fn print(
        self,
        result: &impl Serialize,
        table: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        write(|out| match self {
            Self::Table => table(out),
            Self::Json => {
                serde_json::to_writer_pretty(&mut *out, result)?;
                out.write_all(b"\n")
            }
            Self::Yaml => yaml::write(out, result),
        })
    }
}

/// Prints a result. A reader that has closed the output, as `head` does, is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    write(|out| out.write_all(text.as_bytes()))
}

/// Prints a result piece by piece; see [`print()`].
pub(crate) fn write(result: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut stdout = BufWriter::new(io::stdout().lock());
    match result(&mut stdout).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("standard output cannot be written to")
        }
        _ => Ok(()),
    }
}

/// A count and what it counts, in the singular or the plural.
pub(crate) fn counted<N: Display + PartialEq + From<u8>>(count: N, one: &str, several: &str) -> String {
    let counted = if count == N::from(1) { one } else { several };
    format!("{count} {counted}")
}

/// Rows as columns, two spaces apart.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line: Vec<String> = cells.collect();
        format!("{}\n", line.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
