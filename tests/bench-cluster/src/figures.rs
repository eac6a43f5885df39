//! Percentiles of what was measured.

/// The least of these values that so many of a thousand do not exceed (nearest rank: a value that was seen,
/// none that was reckoned between two); not a number where there are none.
pub(crate) fn percentile(sorted: &[f64], per_mille: usize) -> f64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up_to(last: u32) -> Vec<f64> {
        (1..=last).map(f64::from).collect()
    }

    #[test]
    fn a_percentile_is_a_value_that_was_seen() {
        let values = up_to(1000);
        let of = |per_mille| percentile(&values, per_mille);
        assert_eq!([0, 1, 500, 990, 999, 1000].map(of), [1.0, 1.0, 500.0, 990.0, 999.0, 1000.0]);
    }

    #[test]
    fn of_few_values_the_highest_percentiles_are_the_last() {
        assert_eq!([500, 990, 999].map(|per_mille| percentile(&up_to(3), per_mille)), [2.0, 3.0, 3.0]);
        assert_eq!(percentile(&up_to(1), 500), 1.0);
    }

    #[test]
    fn of_nothing_there_is_none() {
        assert!(percentile(&[], 500).is_nan());
    }
}
