//! The order of resource versions.

use bindery_core::Version;

/// Whether `a` is certainly newer than `b`, which may be the version of another object of the cluster. False
/// where they cannot be compared.
///
/// Compares as Kubernetes 1.35 and later do (KEP-5504): versions are decimal integers of any length without
/// leading zeros.
pub fn is_newer(a: &Version, b: &Version) -> bool {
    let is_number =
        |text: &str| text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() && !text.starts_with('0');
    is_number(&a.0) && is_number(&b.0) && (a.0.len(), &*a.0) > (b.0.len(), &*b.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers_of_any_length() {
        let is_newer = |a: &str, b: &str| is_newer(&Version::from(a), &Version::from(b));
        assert!(is_newer("10", "2") && !is_newer("2", "10") && !is_newer("7", "7"));
        assert!(is_newer("18446744073709551617", "18446744073709551616"));
        for text in ["", "0", "07", "-1", "1a", "+1", " 1"] {
            assert!(!is_newer(text, "1") && !is_newer("1", text), "{text:?}");
        }
    }
}
