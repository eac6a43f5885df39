//! Figures and the tables that show them.

use std::io::{self, Write as _};

#[expect(clippy::cast_precision_loss, reason = "the counts of a benchmark are far below 2^52")]
pub(crate) fn count(number: usize) -> f64 {
    number as f64
}

/// Prints the head of a table in Markdown. A column is aligned to the left if it begins with `<`.
pub(crate) fn head(columns: &str) -> io::Result<()> {
    let rules = columns.split(" | ").map(|column| if column.starts_with('<') { "---" } else { "--:" });
    row(&columns.replace('<', ""))?;
    row(&rules.collect::<Vec<_>>().join(" | "))
}

pub(crate) fn row(cells: &str) -> io::Result<()> {
    writeln!(io::stdout(), "| {cells} |")
}
