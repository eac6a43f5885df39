//! YAML as kubectl reads it: the booleans and octal numbers of version 1.1, merge keys, and no key twice.
//! JSON is YAML.

use serde::Serialize;
use serde_json::Value;
use serde_saphyr::{Error, Options, Spanned, UserMessageFormatter, budget, options};

/// Collections within collections. No manifest comes near; what goes deeper is refused as soon as it is met.
const DEPTH_MAX: usize = 128;
/// Events (keys, values, ends) that anchors may repeat. Without this bound a small text could stand for a
/// huge one.
const REPEATED_MAX: usize = 100_000;

/// A document of a text.
pub(crate) struct Document {
    /// The line on which it begins, counted from 1.
    pub(crate) line: u64,
    /// Its content.
    pub(crate) content: Value,
}

/// The documents of a text that have content, in order; or why one cannot be read, with line and column.
pub(crate) fn documents(text: &str) -> Result<Vec<Document>, String> {
    let document = |read: Result<Spanned<Value>, Error>| {
        let read = read.map_err(|error| error.render_with_formatter(&UserMessageFormatter))?;
        Ok(Document { line: read.referenced.line(), content: read.value })
    };
    serde_saphyr::read_with_options(&mut text.as_bytes(), reading()).map(document).collect()
}

/// Writes something as a document.
///
/// # Errors
///
/// It has a form that YAML lacks.
pub(crate) fn write(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(value)?)
}

/// How a text is read. As long as it is, it may be: a list of all volumes of a cluster is long.
fn reading() -> Options {
    options! {
        budget: budget! {
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_recorded_anchor_events: REPEATED_MAX,
            max_reader_input_bytes: None,
            max_documents: usize::MAX,
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
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
    fn it_is_read_as_kubectl_reads_it() {
        assert_eq!(
            read("a: yes\nb: 0644\nc: \"0644\"\nd: 5Gi\ne: ~\n"),
            [(1, json!({"a": true, "b": 420, "c": "0644", "d": "5Gi", "e": null}))]
        );
        assert_eq!(read("a: &a {b: 1}\nc: {<<: *a, d: 2}")[0].1["c"], json!({"b": 1, "d": 2}));
        // As editors of other systems write it.
        assert_eq!(read("\u{feff}a: 1\r\n---\r\n\r\nb: 2\r\n"), [(1, json!({"a": 1})), (4, json!({"b": 2}))]);
        assert_eq!(read("%YAML 1.1\n---\n# nothing\n---\n{\"a\": [1]}\n...\n"), [(5, json!({"a": [1]}))]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let value = json!({"a": ["yes", "0644", "", " b", "c: d", "e\nf\n"], "g": {}, "h": [], "i": null});
        assert_eq!(read(&write(&value).unwrap()), [(1, value)]);
    }

    /// Each of these would take a reader that goes on to the end minutes, or all memory.
    #[test]
    fn what_is_too_deep_or_grows_is_refused_where_that_shows() {
        const MANY: usize = 100_000;
        let growing = (1..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
            let before = n - 1;
            text + &format!("a{n}: &a{n} [*a{before}, *a{before}, *a{before}, *a{before}]\n")
        });
        for (text, why) in [
            ("[".repeat(MANY), "recursion limit exceeded at line 1, column 129"),
            ("{a: ".repeat(MANY), "recursion limit exceeded at line 1, column 513"),
            ("- ".repeat(MANY), "YAML document too large or too complex"),
            ("? ".repeat(MANY), "YAML document too large or too complex"),
            (growing, "YAML document too large or too complex"),
        ] {
            let said = documents(&text).err().unwrap();
            assert!(said.starts_with(why), "{said}");
        }
    }
}
