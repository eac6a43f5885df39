//! Kubernetes quantities, parsed, compared and written in canonical form as in
//! `apimachinery/pkg/api/resource`.
//!
//! Unlike the quantities of `bindery_core`, which are sizes of volumes, these can be negative and of any
//! size.

use std::cmp::Ordering;

use bindery_core::{Notation, NotationError, QuantityFormat};

/// A quantity: `digits` × 10^`power`, and the properties of its text that upstream keeps.
#[derive(Clone, Debug)]
pub(crate) struct Quantity {
    negative: bool,
    /// Decimal digits without leading and trailing zeros; empty for zero.
    digits: Vec<u8>,
    power: i64,
    format: QuantityFormat,
    /// The text, if upstream considers it canonical and never rewrites it.
    text: Option<String>,
    /// Whether upstream stores the number as an int64 and a power of ten, not as a big decimal.
    small: bool,
}

/// Upstream's quantities are multiples of 10^-9.
const NANO: i64 = -9;
/// Lists of resources are rounded up to multiples of 10^-3 (`SetDefaults_ResourceList`).
const MILLI: i64 = -3;
/// Upstream caps binary quantities at this value, and no others.
const BINARY_MAX: &str = "9223372036854775807";
/// The decimal digits that always fit into an int64.
const SMALL_DIGITS_MAX: usize = 18;

impl Quantity {
    pub(crate) fn zero() -> Self {
        Self::parse("0").expect("zero is a quantity")
    }

    /// Parses a quantity (`ParseQuantity`).
    pub(crate) fn parse(text: &str) -> Result<Self, NotationError> {
        let notation = Notation::parse(text)?;
        let integer = if notation.integer.is_empty() { "0" } else { notation.integer };
        let number = format!("{integer}{}", notation.fraction);
        let decimals = i64::try_from(notation.fraction.len()).unwrap_or(i64::MAX);
        let power = i64::from(notation.decimal).saturating_sub(decimals);
        let binary = notation.format == QuantityFormat::BinarySi;
        let (small, canonical) = if binary {
            // A power of 1024 counts for three digits.
            let small = notation.fraction.is_empty() && number.len() + 3 * notation.binary as usize <= 14;
            (small, !is_multiple_of_8(&number))
        } else {
            let canonical = power % 3 == 0 && !number.ends_with("000") && !number.starts_with('0');
            (number.len() <= SMALL_DIGITS_MAX && power >= NANO, canonical)
        };
        let mut quantity = Quantity {
            negative: notation.negative,
            digits: number.bytes().map(|digit| digit - b'0').collect(),
            power,
            format: notation.format,
            text: (small && canonical).then(|| text.to_owned()),
            small,
        };
        for _ in 0..notation.binary {
            quantity.multiply_by_1024();
        }
        if !small {
            quantity.round_up(NANO);
        }
        quantity.trim();
        if binary && quantity.magnitude(&Self::binary_max()) == Ordering::Greater {
            quantity = Quantity { negative: quantity.negative, ..Self::binary_max() };
        }
        Ok(quantity)
    }

    /// The quantity as upstream keeps it in a list of resources: rounded up to thousandths.
    pub(crate) fn rounded(mut self) -> Self {
        if self.power < MILLI {
            // Upstream drops the text even if its last digits are zeros.
            self.text = None;
        }
        self.round_up(MILLI);
        self.trim();
        self
    }

    fn binary_max() -> Self {
        let digits = BINARY_MAX.bytes().map(|digit| digit - b'0').collect();
        let format = QuantityFormat::BinarySi;
        Quantity { negative: false, digits, power: 0, format, text: None, small: false }
    }

    fn multiply_by_1024(&mut self) {
        let mut carry = 0_u32;
        for digit in self.digits.iter_mut().rev() {
            let product = u32::from(*digit) * 1024 + carry;
            *digit = (product % 10) as u8;
            carry = product / 10;
        }
        while carry > 0 {
            self.digits.insert(0, (carry % 10) as u8);
            carry /= 10;
        }
    }

    /// Rounds to a multiple of 10^`power`, away from zero.
    fn round_up(&mut self, power: i64) {
        let Some(surplus) = usize::try_from(power - self.power).ok().filter(|surplus| *surplus > 0) else {
            return;
        };
        let kept = self.digits.len().saturating_sub(surplus);
        let lost = self.digits.split_off(kept).iter().any(|digit| *digit != 0);
        self.power = power;
        if !lost {
            return;
        }
        for digit in self.digits.iter_mut().rev() {
            *digit = (*digit + 1) % 10;
            if *digit != 0 {
                return;
            }
        }
        self.digits.insert(0, 1);
    }

    /// Removes zeros at both ends.
    fn trim(&mut self) {
        let leading = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..leading);
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.power += 1;
        }
        if self.digits.is_empty() {
            self.negative = false;
            self.text = None;
        }
    }

    /// Compares the values without their signs.
    fn magnitude(&self, other: &Quantity) -> Ordering {
        let place =
            |quantity: &Quantity| quantity.power.saturating_add_unsigned(quantity.digits.len() as u64);
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (false, false) => place(self).cmp(&place(other)).then_with(|| self.digits.cmp(&other.digits)),
            (self_is_zero, other_is_zero) => other_is_zero.cmp(&self_is_zero),
        }
    }

    /// Compares by value.
    pub(crate) fn compare(&self, other: &Quantity) -> Ordering {
        self.sign().cmp(&other.sign()).then_with(|| match self.negative {
            true => other.magnitude(self),
            false => self.magnitude(other),
        })
    }

    /// -1, 0 or 1.
    pub(crate) fn sign(&self) -> i8 {
        match (self.digits.is_empty(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }

    /// Whether the value is a whole number.
    pub(crate) fn is_whole(&self) -> bool {
        self.power >= 0 || self.digits.is_empty()
    }

    /// Upstream's `Quantity.Value`: the whole number, rounded away from zero. Outside of an int64 it
    /// overflows as Go's arithmetic does, because the real server uses that result.
    pub(crate) fn value(&self) -> i64 {
        if self.small {
            let units = self.units(0).unwrap_or(0);
            let units = i64::try_from(units).unwrap_or(0);
            return if self.negative { -units } else { units };
        }
        if !self.negative {
            return self.low_bits(0).cast_signed();
        }
        let thousandths = self.low_bits(MILLI).cast_signed().wrapping_neg();
        thousandths / 1000 + i64::from(thousandths % 1000 != 0)
    }

    /// The magnitude in units of 10^`power`, rounded up. `None` if it does not fit.
    fn units(&self, power: i64) -> Option<u64> {
        let (digits, rest) = self.rounded_digits(power);
        let append = |number: u64, digit: &u8| number.checked_mul(10)?.checked_add(u64::from(*digit));
        let number = digits.iter().try_fold(0, append)?;
        number.checked_mul(10_u64.checked_pow(rest)?)
    }

    /// The lowest 64 bits of the magnitude in units of 10^`power`, rounded up.
    fn low_bits(&self, power: i64) -> u64 {
        let (digits, rest) = self.rounded_digits(power);
        let append = |number: u64, digit: &u8| number.wrapping_mul(10).wrapping_add(u64::from(*digit));
        digits.iter().fold(0, append).wrapping_mul(10_u64.wrapping_pow(rest))
    }

    /// The digits of the quantity rounded to 10^`power`, and how many powers of ten they lack.
    fn rounded_digits(&self, power: i64) -> (Vec<u8>, u32) {
        let mut rounded = self.clone();
        rounded.round_up(power);
        (rounded.digits, u32::try_from(rounded.power - power).unwrap_or(u32::MAX))
    }

    /// The canonical text (`CanonicalizeBytes`).
    pub(crate) fn canonical(&self) -> String {
        if let Some(text) = &self.text {
            return text.clone();
        }
        if self.digits.is_empty() {
            return "0".to_owned();
        }
        let sign = if self.negative { "-" } else { "" };
        let binary = self.format == QuantityFormat::BinarySi && self.is_whole();
        if let Some(units) = self.units(0).filter(|units| binary && *units >= 1024) {
            let steps = (units.trailing_zeros() / 10).min(6);
            let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][steps as usize];
            return format!("{sign}{}{suffix}", units >> (10 * steps));
        }
        let mut number: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        let mut power = self.power;
        while power % 3 != 0 {
            number.push('0');
            power -= 1;
        }
        if self.format == QuantityFormat::DecimalExponent {
            return if power == 0 { format!("{sign}{number}") } else { format!("{sign}{number}e{power}") };
        }
        // Upstream omits a suffix that does not exist, and loses the power.
        let suffixes = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let suffix = usize::try_from((power - NANO) / 3).ok().and_then(|step| suffixes.get(step));
        format!("{sign}{number}{}", suffix.unwrap_or(&""))
    }
}

/// Upstream's test for binary numbers that may fit a larger suffix.
fn is_multiple_of_8(number: &str) -> bool {
    number[number.len().saturating_sub(3)..].parse::<u32>().is_ok_and(|last| last % 8 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, canonical: &str) {
        assert_eq!(Quantity::parse(text).unwrap().canonical(), canonical, "{text}");
    }

    #[test]
    fn each_canonical_form_is_upstreams() {
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
            ("1E", "1E"),
            ("-5Gi", "-5Gi"),
            ("1.1Ki", "1126400m"),
            ("0.1n", "1n"),
            (".5", "500m"),
            ("512Ki", "512Ki"),
            ("1e-30", "1e-9"),
            ("1e30", "1e30"),
        ] {
            check(text, canonical);
        }
    }

    #[test]
    fn a_large_quantity_is_capped_only_if_it_is_binary() {
        for (text, canonical) in [
            ("100Ei", "9223372036854775807"),
            ("-100Ei", "-9223372036854775807"),
            ("123456789012345678901234567890Ki", "9223372036854775807"),
            ("7.9999999999999999999999999999999999999999999999999999999999999Ei", "9223372036854775807"),
            ("7Ei", "7Ei"),
            ("10E", "10E"),
            ("1e40", "10e39"),
            ("100000000000000000000", "100E"),
        ] {
            check(text, canonical);
        }
    }

    #[test]
    fn a_quantity_in_a_resource_list_is_rounded_to_thousandths() {
        for (text, canonical) in
            [("0.1n", "1m"), ("1.0000000001", "1001m"), ("1.9999", "2"), ("-0.0001", "-1m"), ("5Gi", "5Gi")]
        {
            assert_eq!(Quantity::parse(text).unwrap().rounded().canonical(), canonical, "{text}");
        }
    }

    #[test]
    fn an_integer_value_overflows_as_in_go() {
        for (text, value) in [
            ("1500m", 2),
            ("-1500m", -2),
            ("10E", 0),
            ("9223372036854775807", i64::MAX),
            ("9223372036854775808", i64::MIN),
            ("-9223372036854775809", -1),
            ("18446744073709551617", 1),
            ("-1.5Gi", -1_610_612_736),
        ] {
            assert_eq!(Quantity::parse(text).unwrap().value(), value, "{text}");
        }
    }

    #[test]
    fn quantities_compare_by_value() {
        let ascending = [
            "-1e40", "-2", "-1.5", "0", "1n", "1m", "1", "1Ki", "1025", "1G", "1Gi", "8Ei", "10E", "15E",
            "1e40",
        ];
        let quantities = ascending.map(|text| Quantity::parse(text).unwrap());
        for (place, quantity) in quantities.iter().enumerate() {
            for (other_place, other) in quantities.iter().enumerate() {
                let (left, right) = (ascending[place], ascending[other_place]);
                assert_eq!(quantity.compare(other), place.cmp(&other_place), "{left} and {right}");
            }
        }
        let quantity = |text| Quantity::parse(text).unwrap();
        assert_eq!(quantity("1Gi").compare(&quantity("1024Mi")), Ordering::Equal);
        assert_eq!(quantity("-1").sign(), -1);
        assert!(!quantity("1m").is_whole());
    }
}
