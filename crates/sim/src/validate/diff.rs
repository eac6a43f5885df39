//! The difference of two values, for messages about immutable fields.

use serde_json::Value;

/// The differing lines of two values, as in a unified diff.
pub(super) fn diff(old: &Value, new: &Value) -> String {
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    lines(old, "", &mut removed);
    lines(new, "", &mut added);
    let mut text = String::from("--- \n+++ \n");
    for line in removed.iter().filter(|line| !added.contains(line)) {
        text.push_str(&format!("-{line}\n"));
    }
    for line in added.iter().filter(|line| !removed.contains(line)) {
        text.push_str(&format!("+{line}\n"));
    }
    text
}

fn lines(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                lines(value, &path, found);
            }
        }
        _ => found.push(format!(" {path}: {value}")),
    }
}
