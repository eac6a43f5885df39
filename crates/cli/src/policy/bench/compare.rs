//! This run against an earlier one.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::{Bench, Function, Measured};

/// Reads an earlier result.
pub(super) fn read(path: &Path) -> Result<Bench> {
    let name = path.display();
    let text = fs::read(path).with_context(|| format!("{name} cannot be read"))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{name} is not a result of `bindery policy bench -o json`"))
}

/// A sentence for each call whose fuel a row has grown by more than so many per cent.
///
/// # Errors
///
/// The fuel of the two cannot be compared; why, and the remedy.
pub(super) fn grown(earlier: &Bench, now: &Bench, percent: u32) -> Result<Vec<String>> {
    if earlier.fuel_schedule != now.fuel_schedule {
        bail!(
            "the earlier result counts fuel by {:?}, this one by {:?}: measure both with one bindery",
            earlier.fuel_schedule,
            now.fuel_schedule
        );
    }
    if earlier.rows != now.rows {
        bail!("only one of the two results has volumes of cases: measure both with the same cases");
    }
    let mut grown = Vec::new();
    for call in &now.calls {
        let same = |other: &&Measured| (other.function, other.rows) == (call.function, call.rows);
        let Some(before) = earlier.calls.iter().find(same) else { continue };
        // By row it has grown as much, because the rows are as many.
        if u128::from(call.fuel) * 100 > u128::from(before.fuel) * u128::from(100 + u64::from(percent)) {
            let place = match call.function {
                Function::Narrow => "narrow".to_owned(),
                Function::Judge => format!("judge, {} rows", call.rows),
            };
            let (before, after) = (before.fuel_per_row, call.fuel_per_row);
            grown.push(format!("{place}: fuel a row grew from {before} to {after}, by more than {percent}%"));
        }
    }
    Ok(grown)
}
