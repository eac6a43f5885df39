//! The table of values in the chart's README, made from values.yaml.
//!
//! values.yaml can be parsed line by line: two spaces for each level, a comment of whole lines above each
//! key, lists and empty maps in flow style. A map whose keys have no comments is one value.

use std::fmt::Write as _;

use anyhow::{Result, bail};

const BEGIN: &str = "<!-- Generated from values.yaml by `cargo xtask chart`. -->\n";
const END: &str = "<!-- End of the generated table. -->\n";

/// A key with the keys below it.
struct Entry {
    line: usize,
    key: String,
    comment: String,
    /// The text after the key; empty if keys follow below.
    value: String,
    below: Vec<Entry>,
}

impl Entry {
    /// Whether it, or a key below it, has a comment.
    fn is_documented(&self) -> bool {
        !self.comment.is_empty() || self.below.iter().any(Self::is_documented)
    }
}

/// The README with a new table. An error names the line of values.yaml.
pub(super) fn with_table(readme: &str, values: &str) -> Result<String> {
    let parts = readme.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        bail!("charts/bindery/README.md has no lines {:?} and {:?}", BEGIN.trim(), END.trim());
    };
    let mut table = "\n| value | default | what it does |\n|---|---|---|\n".to_owned();
    rows(&read(values)?, "", &mut table)?;
    Ok(format!("{before}{BEGIN}{table}\n{END}{after}"))
}

fn rows(entries: &[Entry], path: &str, table: &mut String) -> Result<()> {
    for entry in entries {
        let name = format!("{path}{}", entry.key);
        if entry.below.iter().any(Entry::is_documented) {
            rows(&entry.below, &format!("{name}."), table)?;
            continue;
        }
        if entry.comment.is_empty() {
            bail!("values.yaml, line {}: {name} has no comment", entry.line);
        }
        let _ = writeln!(table, "| `{name}` | `{}` | {} |", flow(entry), entry.comment.replace('|', "\\|"));
    }
    Ok(())
}

/// The value in one line.
fn flow(entry: &Entry) -> String {
    if entry.below.is_empty() {
        return entry.value.clone();
    }
    let pairs: Vec<_> = entry.below.iter().map(|below| format!("{}: {}", below.key, flow(below))).collect();
    format!("{{{}}}", pairs.join(", "))
}

/// The keys of the file as a tree.
fn read(text: &str) -> Result<Vec<Entry>> {
    // The keys above the line that is read, the file itself first.
    let mut open: Vec<Vec<Entry>> = vec![Vec::new()];
    let mut comment: Vec<&str> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let content = line.trim_start();
        if content.is_empty() {
            comment.clear();
        } else if let Some(words) = content.strip_prefix("# ") {
            comment.push(words);
        } else {
            let depth = (line.len() - content.len()) / 2;
            let Some((key, value)) = content.split_once(':') else {
                bail!("values.yaml, line {number}: neither a comment nor a key");
            };
            if depth >= open.len() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                bail!(
                    "values.yaml, line {number}: keys are words, each level two spaces below the one above"
                );
            }
            close(&mut open, depth);
            let (key, value) = (key.to_owned(), value.trim().to_owned());
            open[depth].push(Entry {
                line: number,
                key,
                comment: comment.join(" "),
                value,
                below: Vec::new(),
            });
            open.push(Vec::new());
            comment.clear();
        }
    }
    close(&mut open, 0);
    Ok(open.swap_remove(0))
}

/// Moves the entries below `depth` into the last entry at that depth.
fn close(open: &mut Vec<Vec<Entry>>, depth: usize) {
    while open.len() > depth + 1 {
        let below = open.pop().expect("the loop condition counts more levels");
        if let Some(parent) = open.last_mut().and_then(|level| level.last_mut()) {
            parent.below = below;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(values: &str) -> Result<String> {
        let made = with_table(&format!("# Chart\n{BEGIN}old\n{END}rest\n"), values)?;
        Ok(made.replace(BEGIN, "").replace(END, ""))
    }

    #[test]
    fn each_documented_value_becomes_a_row() {
        let values = "# A.\n# B|C.\na: 1\n\nb:\n  # D.\n  c: [x, \"y: z\"]\n  # E.\n  d:\n    e: 1\n    f:\n\
                      \x20     g: h\nj:\n  k:\n    # L.\n    l: 0\n# I.\ni: {}\n";
        let rows = [
            "| value | default | what it does |",
            "|---|---|---|",
            "| `a` | `1` | A. B\\|C. |",
            "| `b.c` | `[x, \"y: z\"]` | D. |",
            "| `b.d` | `{e: 1, f: {g: h}}` | E. |",
            "| `j.k.l` | `0` | L. |",
            "| `i` | `{}` | I. |",
        ];
        assert_eq!(table(values).unwrap(), format!("# Chart\n\n{}\n\nrest\n", rows.join("\n")));
    }

    #[test]
    fn a_value_without_a_comment_is_refused_with_its_line() {
        for (values, why) in [
            ("a: 1\n", "line 1: a has no comment"),
            ("# A.\na:\n  # B.\n  b: 1\n  c: 2\n", "line 5: a.c has no comment"),
            ("# A.\na:\n  - 1\n", "line 3: neither a comment nor a key"),
            ("# A.\na:\n      b: 1\n", "line 3: keys are words"),
        ] {
            let error = table(values).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
