//! Texts that Kubernetes takes: names by the rules of DNS, and values of labels.

/// The longest label of a name, and the longest value of a label of an object, in bytes.
const LABEL_BYTES_MAX: usize = 63;
/// The longest subdomain, in bytes.
const SUBDOMAIN_BYTES_MAX: usize = 253;

/// `IsDNS1123Label` of apimachinery.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= LABEL_BYTES_MAX && is_part(text)
}

/// `IsDNS1123Subdomain` of apimachinery.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_BYTES_MAX && text.split('.').all(is_part)
}

/// `IsValidLabelValue` of apimachinery. Names in keys of labels follow the same rule, and are not empty.
pub fn is_label_value(value: &str) -> bool {
    let bytes = value.as_bytes();
    let is_end = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    bytes.len() <= LABEL_BYTES_MAX
        && is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_part(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_allowed) && !text.starts_with('-') && !text.ends_with('-')
}
