//! Kubernetes quantities: read, compared, and written in canonical form, as `apimachinery/pkg/api/resource` does.

use std::cmp::Ordering;

/// What the real server says of a text that is no quantity.
pub(crate) const FORMAT_ERROR: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// How a quantity is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// `1Gi`
    Binary,
    /// `1G`, `500m`
    Decimal,
    /// `1e3`
    Exponent,
}

/// A quantity: a whole number of nanos and the form in which it was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    /// The value times 10^9, rounded away from zero, capped at 2^63-1 whole units.
    nanos: i128,
    format: Format,
}

const NANO: i128 = 1_000_000_000;
const NANOS_MAX: i128 = i64::MAX as i128 * NANO;

/// Suffix, and the value of one in nanos.
const BINARY: [(&str, i128); 6] = [
    ("Ki", NANO << 10),
    ("Mi", NANO << 20),
    ("Gi", NANO << 30),
    ("Ti", NANO << 40),
    ("Pi", NANO << 50),
    ("Ei", NANO << 60),
];

/// Suffix and the power of ten.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

impl Quantity {
    /// Reads a quantity; `None` where the text is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let digits = format!("{whole}{fraction}");
        let scale = -i32::try_from(fraction.len()).ok()?;
        let (nanos, format) = if let Some((_, unit)) = BINARY.iter().find(|(name, _)| *name == suffix) {
            (scaled(&digits, scale, *unit), Format::Binary)
        } else if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
            (scaled(&digits, scale + power, NANO), Format::Decimal)
        } else {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            (scaled(&digits, scale.checked_add(exponent.parse().ok()?)?, NANO), Format::Exponent)
        };
        // A binary quantity below 1024 or with a fraction is still written binary only where that is exact.
        let nanos = nanos.min(NANOS_MAX);
        Some(Quantity { nanos: if negative { -nanos } else { nanos }, format })
    }

    /// Compares by value.
    pub(crate) fn compare(&self, other: &Quantity) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }

    /// -1, 0 or 1.
    pub(crate) fn sign(&self) -> i128 {
        self.nanos.signum()
    }

    /// The value as a whole number, rounded away from zero.
    pub(crate) fn whole(&self) -> i64 {
        let units = self.nanos / NANO + if self.is_whole() { 0 } else { self.sign() };
        i64::try_from(units).unwrap_or(if units < 0 { i64::MIN } else { i64::MAX })
    }

    /// Whether the value is a whole number.
    pub(crate) fn is_whole(&self) -> bool {
        self.nanos % NANO == 0
    }

    /// The canonical text.
    pub(crate) fn canonical(&self) -> String {
        if self.nanos == 0 {
            return "0".to_owned();
        }
        let magnitude = self.nanos.abs();
        let sign = if self.nanos < 0 { "-" } else { "" };
        let whole = magnitude / NANO;
        if self.format == Format::Binary && magnitude % NANO == 0 && whole >= 1024 {
            let steps = (whole.trailing_zeros() / 10).min(6);
            let suffix = if steps == 0 { "" } else { BINARY[steps as usize - 1].0 };
            return format!("{sign}{}{suffix}", whole >> (10 * steps));
        }
        let mut number = magnitude;
        let mut power = -9;
        while number % 1000 == 0 && power < 18 {
            number /= 1000;
            power += 3;
        }
        if self.format == Format::Exponent {
            return if power == 0 { format!("{sign}{number}") } else { format!("{sign}{number}e{power}") };
        }
        let suffix = DECIMAL.iter().find(|(_, p)| *p == power).map_or("", |(name, _)| name);
        format!("{sign}{number}{suffix}")
    }
}

/// `digits` times 10^`power` units, rounded up; far too large is capped.
fn scaled(digits: &str, power: i32, unit: i128) -> i128 {
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    // More than 38 digits before the point exceed i128, and so the cap.
    let whole_digits = i64::try_from(digits.len()).unwrap_or(i64::MAX).saturating_add(i64::from(power));
    if whole_digits > 20 {
        return NANOS_MAX;
    }
    if whole_digits < -18 {
        return 1;
    }
    // 38 digits lie far beyond nanos of the largest unit.
    let kept = digits.len().min(18.max(usize::try_from(whole_digits.max(0)).unwrap_or(0)));
    let lost = digits[kept..].bytes().any(|digit| digit != b'0');
    let mantissa: i128 = digits[..kept].parse().unwrap_or(i128::MAX);
    let power = i64::from(power) + i64::try_from(digits.len() - kept).unwrap_or(0);
    let exact = if power >= 0 {
        10_i128.checked_pow(u32::try_from(power).unwrap_or(u32::MAX)).and_then(|p| p.checked_mul(mantissa))
    } else {
        None
    };
    if let Some(value) = exact {
        return value.checked_mul(unit).map_or(NANOS_MAX, |nanos| nanos + i128::from(lost));
    }
    if power >= 0 {
        return NANOS_MAX;
    }
    let Some(divisor) = 10_i128.checked_pow(u32::try_from(-power).unwrap_or(u32::MAX)) else {
        return 1;
    };
    let whole = (mantissa / divisor).checked_mul(unit);
    let part = (mantissa % divisor).checked_mul(unit);
    match (whole, part) {
        (Some(whole), Some(part)) => {
            let rounded = part / divisor + i128::from(part % divisor != 0 || lost);
            whole.saturating_add(rounded)
        }
        _ => NANOS_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, canonical: &str) {
        assert_eq!(Quantity::parse(text).map(|q| q.canonical()).as_deref(), Some(canonical), "{text}");
    }

    #[test]
    fn canonical_forms_of_upstream() {
        for (text, canonical) in [
            ("0", "0"),
            ("0Gi", "0"),
            ("1Gi", "1Gi"),
            ("1024Mi", "1Gi"),
            ("1023Mi", "1023Mi"),
            ("0.5Gi", "512Mi"),
            ("1.5Gi", "1536Mi"),
            ("1024", "1024"),
            ("1000", "1k"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("10G", "10G"),
            ("1000G", "1T"),
            ("1e3", "1e3"),
            ("10e3", "10e3"),
            ("1E3", "1e3"),
            ("1E", "1E"),
            ("-5Gi", "-5Gi"),
            ("+5Gi", "5Gi"),
            ("1.1Ki", "1126400m"),
            ("0.1n", "1n"),
            (".5", "500m"),
            ("5.", "5"),
            ("512Ki", "512Ki"),
            ("100Ei", "9223372036854775807"),
        ] {
            check(text, canonical);
        }
    }

    #[test]
    fn what_is_no_quantity() {
        for text in ["", "Gi", "1gi", "1 Gi", "1.2.3", "--1", "1e", "1eG", "abc", "."] {
            assert!(Quantity::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn comparison_is_by_value() {
        let quantity = |text| Quantity::parse(text).unwrap();
        assert_eq!(quantity("1Gi").compare(&quantity("1024Mi")), Ordering::Equal);
        assert_eq!(quantity("1G").compare(&quantity("1Gi")), Ordering::Less);
        assert_eq!(quantity("-1").sign(), -1);
        assert!(!quantity("1m").is_whole());
    }
}
