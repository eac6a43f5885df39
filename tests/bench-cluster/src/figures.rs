//! Figures and the tables that show them.

use std::io::{self, Write as _};

/// The smallest value that `per_mille` of 1,000 values do not exceed (nearest rank, so always a measured
/// value); NaN for no values.
pub(crate) fn percentile(sorted: &[f64], per_mille: usize) -> f64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

pub(crate) fn percentiles<const N: usize>(
    values: impl IntoIterator<Item = f64>,
    per_mille: [usize; N],
) -> [f64; N] {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    per_mille.map(|per_mille| percentile(&values, per_mille))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_measured_value_of_nearest_rank() {
        for (last, per_mille, expected) in [
            (
                1000,
                [0, 1, 500, 990, 999, 1000].as_slice(),
                [1.0, 1.0, 500.0, 990.0, 999.0, 1000.0].as_slice(),
            ),
            (3, &[500, 990, 999], &[2.0, 3.0, 3.0]),
            (1, &[500], &[1.0]),
        ] {
            let values: Vec<f64> = (1..=last).map(f64::from).collect();
            let found: Vec<f64> = per_mille.iter().map(|&part| percentile(&values, part)).collect();
            assert_eq!(found, expected, "1 to {last}");
        }
        assert!(percentile(&[], 500).is_nan());
    }
}
