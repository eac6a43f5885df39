//! How much of a journal a report keeps in memory.

use std::fmt::Display;

use anyhow::{Result, bail};

/// Most bytes of a journal that a report keeps until it is printed. A journal may have a thousand times more
/// bytes than its files.
pub(crate) const KEPT_MAX: usize = 1 << 30;

/// Fails if a report keeps more than [`KEPT_MAX`] bytes of a journal after this entry.
pub(crate) fn check_kept(bytes: usize, entry: impl Display) -> Result<()> {
    if bytes > KEPT_MAX {
        bail!(
            "{entry}: the report of the journal up to there has more than 1 GiB; give its files one by one, \
             or print that of `bindery replay` as a table"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_more_than_a_report_keeps_the_entry_and_the_remedy_are_told() {
        assert!(check_kept(KEPT_MAX, "record 7").is_ok());
        let error = check_kept(KEPT_MAX + 1, "record 7").unwrap_err().to_string();
        assert!(error.starts_with("record 7: ") && error.contains("give its files one by one"), "{error}");
    }
}
