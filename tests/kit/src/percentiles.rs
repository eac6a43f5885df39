//! Percentiles of measured values.

fn percentile(sorted: &[f64], per_mille: usize) -> f64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

/// For each `per_mille`, the smallest value that so many of 1,000 values do not exceed (nearest rank, so
/// always a measured value); NaN for no values.
#[must_use]
pub fn percentiles<const N: usize>(values: impl IntoIterator<Item = f64>, per_mille: [usize; N]) -> [f64; N] {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    per_mille.map(|per_mille| percentile(&values, per_mille))
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
