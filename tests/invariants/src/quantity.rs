//! Amounts of storage.

/// Thousandths of a byte in a quantity such as `1Gi`, `1.5G`, `500m` or `1e9`, rounded down; `None` if the
/// text is not a quantity.
pub(crate) fn thousandths(text: &str) -> Option<i128> {
    let digits =
        text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if !fraction.chars().all(|c| c.is_ascii_digit()) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let (numerator, denominator) = factor(suffix)?;
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let unscaled: i128 = format!("{whole}{fraction}").parse().ok()?;
    unscaled.checked_mul(numerator)?.checked_mul(1_000)?.checked_div(scale.checked_mul(denominator)?)
}

/// The factor of a suffix, as a fraction.
fn factor(suffix: &str) -> Option<(i128, i128)> {
    let binary = |power: u32| Some((1_024_i128.pow(power), 1));
    let decimal = |power: u32| Some((1_000_i128.pow(power), 1));
    match suffix {
        "" => Some((1, 1)),
        "m" => Some((1, 1_000)),
        "k" => decimal(1),
        "M" => decimal(2),
        "G" => decimal(3),
        "T" => decimal(4),
        "P" => decimal(5),
        "E" => decimal(6),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let factor = 10_i128.checked_pow(power.unsigned_abs())?;
            Some(if power < 0 { (1, factor) } else { (factor, 1) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::thousandths;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (text, bytes) in [
            ("0", 0),
            ("1", 1),
            ("1Ki", 1 << 10),
            ("1.5Gi", 3 << 29),
            ("10Ei", 10 << 60),
            ("2k", 2_000),
            ("0.5M", 500_000),
            ("1e9", 1_000_000_000),
            ("12E3", 12_000),
            ("2000m", 2),
        ] {
            assert_eq!(thousandths(text), Some(bytes * 1_000), "{text}");
        }
        assert_eq!(thousandths("1500m"), Some(1_500));
        for text in ["", "Gi", "1gi", "1 Gi", "1.2.3", "one", "1ee3"] {
            assert_eq!(thousandths(text), None, "{text}");
        }
    }
}
