//! The faults of names, in the words of `apimachinery/pkg/util/validation`.

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

const LABEL_WORDS: &str =
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'";
const SUBDOMAIN_WORDS: &str =
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'";
const KEY_WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.'";
const VALUE_WORDS: &str =
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'";

/// The fault of a text of more than `max` bytes, if it is one.
fn too_long(text: &str, max: usize) -> Option<String> {
    (text.len() > max).then(|| format!("must be no more than {max} characters"))
}

fn pattern(words: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    let examples = examples.join(" or ");
    let ends = "must start and end with an alphanumeric character";
    format!("{words}, and {ends} (e.g. {examples}regex used for validation is '{pattern}')")
}

fn is_label(text: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// One part of a qualified name, or a label value that is not empty.
fn is_key(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// `IsDNS1123Subdomain`.
pub(super) fn subdomain(text: &str) -> Vec<String> {
    let mut faults = Vec::from_iter(too_long(text, 253));
    if !is_subdomain(text) {
        faults.push(pattern(SUBDOMAIN_WORDS, SUBDOMAIN, &["example.com"]));
    }
    faults
}

/// `IsDNS1123Label`.
pub(super) fn label(text: &str) -> Vec<String> {
    let mut faults = Vec::from_iter(too_long(text, 63));
    if !is_label(text) {
        faults.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            pattern(LABEL_WORDS, LABEL, &["my-name", "123-abc"])
        });
    }
    faults
}

/// `IsQualifiedName`: a name with an optional prefix and a slash.
pub(crate) fn qualified(text: &str) -> Vec<String> {
    let words = || pattern(KEY_WORDS, KEY, &["MyName", "my.name", "123-abc"]);
    let mut faults = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        ["", name] => {
            faults.push("prefix part must be non-empty".to_owned());
            *name
        }
        [prefix, name] => {
            faults.extend(subdomain(prefix).iter().map(|fault| format!("prefix part {fault}")));
            *name
        }
        _ => {
            let prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {} {prefix}", words())];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    }
    faults.extend(too_long(name, 63).map(|fault| format!("name part {fault}")));
    if !is_key(name) {
        faults.push(format!("name part {}", words()));
    }
    faults
}

/// `IsValidLabelValue`.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut faults = Vec::from_iter(too_long(text, 63));
    if !text.is_empty() && !is_key(text) {
        faults.push(pattern(VALUE_WORDS, &format!("({KEY})?"), &["MyValue", "my_value", "12345"]));
    }
    faults
}

/// `IsValidPathSegmentName`.
pub(super) fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    let illegal = ["/", "%"].into_iter().filter(|illegal| text.contains(illegal));
    illegal.map(|illegal| format!("may not contain '{illegal}'")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_accepts_and_refuses_the_names_that_upstream_does() {
        for good in ["a", "a-b", "a.b-c.1", "1"] {
            assert_eq!(subdomain(good), Vec::<String>::new(), "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a..b", "a_b", "a b"] {
            assert_eq!(subdomain(bad).len(), 1, "{bad}");
        }
        assert_eq!(label("a.b"), ["must not contain dots"]);
        assert_eq!(path_segment("a/b%"), ["may not contain '/'", "may not contain '%'"]);
        assert!(qualified("example.com/My_Name.1").is_empty());
        assert_eq!(qualified("/x"), ["prefix part must be non-empty"]);
        assert_eq!(qualified("a/b/c").len(), 1);
        assert_eq!(qualified("").len(), 2);
        assert!(label_value("").is_empty());
        assert_eq!(
            label_value("a b"),
            ["a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                 '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
                 'my_value',  or '12345', regex used for validation is \
                 '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"]
        );
    }
}
