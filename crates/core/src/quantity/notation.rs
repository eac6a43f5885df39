//! How a quantity is written (`parseQuantityString` and the suffixes of apimachinery).

use super::QuantityFormat;

/// The parts of a quantity's text, whose value is `integer`.`fraction` × 1024^`binary` × 10^`decimal`.
///
/// Without any digit the value is zero, as in upstream: `Gi` is a quantity.
#[derive(Clone, Copy, Debug)]
pub struct Notation<'a> {
    /// Whether the text begins with a minus.
    pub negative: bool,
    /// The digits before the point, without leading zeros.
    pub integer: &'a str,
    /// The digits after the point.
    pub fraction: &'a str,
    /// 1 for `Ki`, 2 for `Mi`, …; 0 for a suffix that is not binary.
    pub binary: u32,
    /// 3 for `k`, -3 for `m`, the number itself for an exponent, which is capped at a million.
    pub decimal: i32,
    /// Which notation the suffix belongs to.
    pub format: QuantityFormat,
}

/// Why a text is not a quantity, in the words of apimachinery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotationError {
    /// A character is wrong or misplaced.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Form,
    /// The digits are missing before a suffix that needs them.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// A larger exponent is out of range for every number, or below a nano.
const EXPONENT_MAX: i32 = 1_000_000;

impl<'a> Notation<'a> {
    /// Parses a text.
    pub fn parse(text: &'a str) -> Result<Self, NotationError> {
        let (negative, unsigned) = match text.as_bytes().first() {
            None => return Err(NotationError::Form),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
        };
        let (integer, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let exponent = suffix.trim_start_matches(|letter| "eEinumkKMGTP".contains(letter));
        if !split_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)).1.is_empty() {
            return Err(NotationError::Form);
        }
        let (format, binary, decimal) = read_suffix(suffix).ok_or(NotationError::Suffix)?;
        // Upstream computes suffixes up to Ti in int64, where no digits mean zero.
        if integer.is_empty() && fraction.is_empty() && binary > 4 {
            return Err(NotationError::Number);
        }
        Ok(Self { negative, integer: integer.trim_start_matches('0'), fraction, binary, decimal, format })
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// The notation of a suffix, its power of 1024 and its power of ten.
fn read_suffix(suffix: &str) -> Option<(QuantityFormat, u32, i32)> {
    let decimal = |power| Some((QuantityFormat::DecimalSi, 0, power));
    let binary = |power| Some((QuantityFormat::BinarySi, power, 0));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            let limit = if exponent.starts_with('-') { -EXPONENT_MAX } else { EXPONENT_MAX };
            let power = exponent.parse().unwrap_or(limit).clamp(-EXPONENT_MAX, EXPONENT_MAX);
            Some((QuantityFormat::DecimalExponent, 0, power))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_is_split_into_its_parts() {
        let parts = |text| {
            let notation = Notation::parse(text).unwrap();
            (notation.negative, notation.integer, notation.fraction, notation.binary, notation.decimal)
        };
        assert_eq!(parts("-012.50Mi"), (true, "12", "50", 2, 0));
        assert_eq!(parts("+.5m"), (false, "", "5", 0, -3));
        assert_eq!(parts("1e+3"), (false, "1", "", 0, 3));
        assert_eq!(parts("1E"), (false, "1", "", 0, 18));
        assert_eq!(parts("1e-99999999999"), (false, "1", "", 0, -EXPONENT_MAX));
        assert_eq!(parts("Ti"), (false, "", "", 4, 0));
        assert_eq!(parts("."), (false, "", "", 0, 0));
    }

    #[test]
    fn malformed_texts_are_not_quantities() {
        for (error, texts) in [
            (NotationError::Form, &["", "1gi", "1 Gi", "1.2.3", "abc", "0x10", "٣"][..]),
            (NotationError::Suffix, &["1e", "1e+", "1eG", "1ki", "1-5", "e", "--1"]),
            (NotationError::Number, &["Ei", "-Pi", ".Ei"]),
        ] {
            for text in texts {
                assert_eq!(Notation::parse(text).unwrap_err(), error, "{text}");
            }
        }
    }
}
