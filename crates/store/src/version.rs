//! The order of resource versions.

use std::cmp::Ordering;

use bindery_core::Version;

/// Compares two versions of one object as Kubernetes 1.35 and later do (KEP-5504): versions are decimal
/// integers of any length without leading zeros. `None` where either is not.
pub(crate) fn compare(a: &Version, b: &Version) -> Option<Ordering> {
    let comparable =
        |text: &str| text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() && !text.starts_with('0');
    (comparable(&a.0) && comparable(&b.0)).then(|| a.0.len().cmp(&b.0.len()).then_with(|| a.0.cmp(&b.0)))
}

/// Whether `a` is known to be newer than `b`: versions of one cluster, of whatever objects.
pub fn is_newer(a: &Version, b: &Version) -> bool {
    compare(a, b) == Some(Ordering::Greater)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers_of_any_length() {
        let compare = |a: &str, b: &str| compare(&Version::from(a), &Version::from(b));
        assert_eq!(compare("10", "2"), Some(Ordering::Greater));
        assert_eq!(compare("7", "7"), Some(Ordering::Equal));
        assert_eq!(compare("18446744073709551616", "18446744073709551617"), Some(Ordering::Less));
        for text in ["", "0", "07", "-1", "1a", "+1", " 1"] {
            assert_eq!(compare(text, "1"), None, "{text:?}");
            assert_eq!(compare("1", text), None, "{text:?}");
        }
    }
}
