//! YAML as kubectl reads it: the booleans and octal numbers of version 1.1, merge keys, and no key twice.
//! JSON is YAML.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use serde_saphyr::{Error, Options, SerializeError, Spanned, UserMessageFormatter, budget, options};

/// Deepest nesting; no manifest comes near. Deeper input is refused where it becomes too deep.
const DEPTH_MAX: usize = 128;
/// Most events (keys, values, ends) that anchors may repeat: without a bound, a small text expands to a huge
/// one.
const REPEATED_MAX: usize = 100_000;
/// Most bytes of scalars that anchors may add to those of the text, for the same reason.
const REPEATED_BYTES_MAX: usize = 16 << 20;

/// One YAML document.
pub(crate) struct Document {
    /// The line on which it begins, from 1.
    pub(crate) line: u64,
    pub(crate) content: Value,
}

/// The documents of a text that have content, in order; or an error with line and column.
pub(crate) fn documents(text: &str) -> Result<Vec<Document>, String> {
    let mut left = text.len().saturating_add(REPEATED_BYTES_MAX);
    let document = |read: Result<Spanned<Value>, Error>| {
        let read = read.map_err(|error| error.render_with_formatter(&UserMessageFormatter))?;
        // The reader counts the text of each document on its own.
        left = left.checked_sub(text_bytes(&read.value)).ok_or("its anchors repeat too much text")?;
        Ok(Document { line: read.referenced.line(), content: read.value })
    };
    serde_saphyr::read_with_options(&mut text.as_bytes(), reading(text.len())).map(document).collect()
}

/// Bytes of all keys and texts of a value.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(text_bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + text_bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Writes a value as YAML.
pub(crate) fn write(mut out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_saphyr::to_io_writer(&mut out, value).map_err(|error| match error {
        SerializeError::IO { error } => error,
        error => io::Error::other(error),
    })
}

/// Options for a text of that length, which is not limited: a list of all volumes of a cluster is long.
fn reading(length: usize) -> Options {
    options! {
        budget: budget! {
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_recorded_anchor_events: REPEATED_MAX,
            max_reader_input_bytes: None,
            max_documents: usize::MAX,
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: length.saturating_add(REPEATED_BYTES_MAX),
            max_total_comment_bytes: usize::MAX,
        },
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Vec<(u64, Value)> {
        documents(text).unwrap().into_iter().map(|document| (document.line, document.content)).collect()
    }

    #[test]
    fn yaml_is_read_as_kubectl_reads_it() {
        assert_eq!(
            read("a: yes\nb: 0644\nc: \"0644\"\nd: 5Gi\ne: ~\n"),
            [(1, json!({"a": true, "b": 420, "c": "0644", "d": "5Gi", "e": null}))]
        );
        assert_eq!(read("a: &a {b: 1}\nc: {<<: *a, d: 2}")[0].1["c"], json!({"b": 1, "d": 2}));
        // With a byte order mark and CRLF.
        assert_eq!(read("\u{feff}a: 1\r\n---\r\n\r\nb: 2\r\n"), [(1, json!({"a": 1})), (4, json!({"b": 2}))]);
        assert_eq!(read("%YAML 1.1\n---\n# nothing\n---\n{\"a\": [1]}\n...\n"), [(5, json!({"a": [1]}))]);
    }

    #[test]
    fn a_written_value_reads_back_the_same() {
        let value = json!({"a": ["yes", "0644", "", " b", "c: d", "e\nf\n"], "g": {}, "h": [], "i": null});
        let mut written = Vec::new();
        write(&mut written, &value).unwrap();
        assert_eq!(read(str::from_utf8(&written).unwrap()), [(1, value)]);
    }

    /// A reader without bounds would take minutes, or all memory, for each of these.
    #[test]
    fn input_that_is_too_deep_or_expands_is_refused_at_that_place() {
        const MANY: usize = 100_000;
        let growing = (1..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
            let before = n - 1;
            text + &format!("a{n}: &a{n} [*a{before}, *a{before}, *a{before}, *a{before}]\n")
        });
        let anchors: String = (0..20).map(|n| format!("a{n}: &a{n} x\n")).collect();
        let repeating = |times| {
            let (text, list) = ("x".repeat(MANY), "*long,".repeat(times));
            format!("---\n{anchors}long: &long {text}\nlist: [{list}]\n")
        };
        for (text, why) in [
            ("[".repeat(MANY), "recursion limit exceeded at line 1, column 129"),
            ("{a: ".repeat(MANY), "recursion limit exceeded at line 1, column 513"),
            ("- ".repeat(MANY), "YAML document too large or too complex"),
            ("? ".repeat(MANY), "YAML document too large or too complex"),
            (growing, "YAML document too large or too complex"),
            (repeating(200), "YAML document too large or too complex"),
            (repeating(100).repeat(3), "its anchors repeat too much text"),
        ] {
            let said = documents(&text).err().unwrap();
            assert!(said.starts_with(why), "{said}");
        }
    }
}
