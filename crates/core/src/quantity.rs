//! Amounts of storage (`resource.Quantity` in apimachinery).

mod notation;

pub use notation::{Notation, NotationError};

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

/// An amount of storage: whole bytes and billionths of a byte, with the notation it was written in.
///
/// Compared by value; the notation only matters for printing. Holds every amount from zero to 2^64 bytes in
/// billionths, which is all that upstream's canonical form can express below 2^64.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Quantity {
    /// Whole bytes.
    pub whole: u64,
    /// Billionths of a byte, less than 10^9. Kubernetes accepts `1500m`.
    pub nanos: u32,
    /// How it was written, and so how it is printed.
    pub format: QuantityFormat,
}

/// Notation of a quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuantityFormat {
    /// `k`, `M`, `G`, …, `m`, `u`, `n`, or no suffix.
    #[default]
    DecimalSi,
    /// `Ki`, `Mi`, `Gi`, …
    BinarySi,
    /// `e3`, `E6`, …
    DecimalExponent,
}

/// Why a text is not a quantity that a volume or a claim can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not of the form `number[suffix]`.
    #[error("{0:?} is not a quantity; write a number with an optional suffix, such as 10Gi, 5G or 1e9")]
    Malformed(String),
    /// Below zero.
    #[error("{0:?} is negative; storage is zero or more")]
    Negative(String),
    /// 2^64 bytes or more.
    #[error("{0:?} is out of range; Bindery handles less than 16Ei (2^64 bytes)")]
    TooLarge(String),
}

/// Billionths in a whole.
const NANOS: u128 = 1_000_000_000;
/// Upstream caps binary notation at this value instead of refusing it (`ParseQuantity`).
const BINARY_MAX: u128 = i64::MAX as u128;

impl Quantity {
    /// Zero bytes.
    pub const ZERO: Self = Self { whole: 0, nanos: 0, format: QuantityFormat::DecimalSi };

    /// So many bytes, printed in binary notation.
    pub const fn bytes(whole: u64) -> Self {
        Self { whole, nanos: 0, format: QuantityFormat::BinarySi }
    }

    /// Parses `text` as apimachinery does: fractions below a nano are rounded up.
    ///
    /// # Errors
    ///
    /// The text is malformed, negative, or 2^64 and more.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let malformed = || QuantityError::Malformed(text.to_owned());
        let too_large = || QuantityError::TooLarge(text.to_owned());
        let notation = Notation::parse(text).map_err(|_| malformed())?;
        let fraction = notation.fraction.trim_end_matches('0');
        let digits = format!("{}{fraction}", notation.integer);
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Ok(Self { whole: 0, nanos: 0, format: notation.format });
        }
        if notation.negative {
            return Err(QuantityError::Negative(text.to_owned()));
        }
        let nanos = nanos(&notation, digits, fraction.len()).ok_or_else(too_large)?;
        let capped = notation.format == QuantityFormat::BinarySi;
        let nanos = if capped { nanos.min(BINARY_MAX * NANOS) } else { nanos };
        Ok(Self {
            whole: u64::try_from(nanos / NANOS).map_err(|_| too_large())?,
            nanos: u32::try_from(nanos % NANOS).map_err(|_| too_large())?,
            format: notation.format,
        })
    }

    /// The amount in billionths of a byte.
    pub fn as_nanos(self) -> u128 {
        u128::from(self.whole) * NANOS + u128::from(self.nanos)
    }
}

/// The number `digits` × 10^-`fraction` with its suffix, in nanos, rounded up; `None` where that is out of
/// range.
fn nanos(notation: &Notation<'_>, digits: &str, fraction: usize) -> Option<u128> {
    let exponent = notation.decimal + 9 - i32::try_from(fraction).ok()?;
    let Ok(number) = digits.parse::<u128>() else {
        return nanos_of_long(digits, notation.binary, exponent);
    };
    let number = number.checked_mul(1024_u128.pow(notation.binary))?;
    if exponent >= 0 {
        return number.checked_mul(10_u128.checked_pow(exponent.unsigned_abs())?);
    }
    Some(10_u128.checked_pow(exponent.unsigned_abs()).map_or(1, |divisor| number.div_ceil(divisor)))
}

/// The same for more digits than an integer holds: the last ones are below a nano, or the amount is out of
/// range.
fn nanos_of_long(digits: &str, binary: u32, exponent: i32) -> Option<u128> {
    const KEPT: usize = 38;
    let surplus = i32::try_from(digits.len() - KEPT).ok()?;
    let exponent = exponent + surplus;
    if exponent >= 0 {
        return None;
    }
    let divisor = 10_u128.checked_pow(exponent.unsigned_abs())?;
    let number: u128 = digits[..KEPT].parse().ok()?;
    // The cut digits round up. Where the product does not fit, the amount is out of range.
    (number / divisor).checked_add(1)?.checked_mul(1024_u128.pow(binary))
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.whole, self.nanos).cmp(&(other.whole, other.nanos))
    }
}

/// Prints the canonical form (`Quantity.CanonicalizeBytes`): no fraction, the largest exact suffix.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.whole == 0 && self.nanos == 0 {
            return f.write_str("0");
        }
        let binary = self.format == QuantityFormat::BinarySi && self.whole >= 1024 && self.nanos == 0;
        if binary {
            let (mut number, mut power) = (self.whole, 0);
            while number.is_multiple_of(1024) && power < 6 {
                number /= 1024;
                power += 1;
            }
            return write!(f, "{number}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let (mut number, mut step) = (self.as_nanos(), 0_usize);
        while number.is_multiple_of(1000) && step < 9 {
            number /= 1000;
            step += 1;
        }
        let exponent = 3 * i32::try_from(step).unwrap_or_default() - 9;
        if self.format == QuantityFormat::DecimalExponent {
            return if exponent == 0 { write!(f, "{number}") } else { write!(f, "{number}e{exponent}") };
        }
        write!(f, "{number}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][step])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_print_as_in_apimachinery() {
        for (text, canonical) in [
            ("0", "0"),
            ("5000Mi", "5000Mi"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1G", "1G"),
            ("1500M", "1500M"),
            ("1000M", "1G"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("1e3", "1e3"),
            ("12E6", "12e6"),
            ("100", "100"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1E", "1E"),
            ("18E", "18E"),
            ("0.1n", "1n"),
            ("16Ei", "9223372036854775807"),
            ("+1k", "1k"),
            (".", "0"),
            ("Gi", "0"),
        ] {
            assert_eq!(Quantity::parse(text).unwrap().to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn malformed_negative_and_huge_quantities_are_errors() {
        for text in ["", "1.2.3", "Ei", "1 Gi", "1ki", "1e", "1e+", "0x10", "٣"] {
            assert!(matches!(Quantity::parse(text), Err(QuantityError::Malformed(_))), "{text}");
        }
        for text in [
            "100E",
            "1e30",
            "1e999999999999",
            "18446744073709551616",
            "99999999999999999999999999999999999999999",
        ] {
            assert!(matches!(Quantity::parse(text), Err(QuantityError::TooLarge(_))), "{text}");
        }
        assert!(matches!(Quantity::parse("-1Gi"), Err(QuantityError::Negative(_))));
    }

    #[test]
    fn quantities_are_compared_by_value() {
        let q = |text| Quantity::parse(text).unwrap();
        assert_eq!(q("1Gi"), q("1073741824"));
        assert!(q("4G") < q("4Gi"));
        assert!(q("1500m") > q("1"));
        assert_eq!(q("0.00000000000000000000000000000000000000000000000001"), q("1n"));
    }
}
