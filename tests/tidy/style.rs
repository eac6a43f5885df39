//! The style of files: lengths, names of tests, delays, marks of unfinished work.

use std::fs;
use std::path::Path;

use super::files::{files, rust_files, shown, word};
use super::nothing_in;

/// Most lines of a file.
const LINES_MAX: usize = 500;
/// Most characters of a line of Rust, comments included.
const RUST_LINE_MAX: usize = 110;
/// Most characters of a line of prose in Markdown.
const PROSE_LINE_MAX: usize = 120;
/// Most characters of the name of a test.
const TEST_NAME_MAX: usize = 70;

#[test]
fn files_are_short() {
    let lengths = rust_files().into_iter().map(|(path, text)| (path, text.lines().count()));
    let long = lengths.filter(|(_, lines)| *lines > LINES_MAX);
    let found: Vec<_> =
        long.map(|(path, lines)| format!("{}: {lines} lines, more than {LINES_MAX}", shown(&path))).collect();
    nothing_in(&found);
}

#[test]
fn lines_are_short() {
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        found.extend(long_lines(&path, text.lines(), RUST_LINE_MAX, |_| true));
    }
    for (path, text) in files("md") {
        let mut is_code = false;
        let is_prose = |line: &str| {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            !is_code && !is_fence && !line.starts_with('|') && !line.starts_with("    ")
        };
        found.extend(long_lines(&path, text.lines(), PROSE_LINE_MAX, is_prose));
    }
    nothing_in(&found);
}

/// The lines of more than `max` characters that contain a space after the first word: a long link cannot be
/// broken.
fn long_lines<'a>(
    path: &Path,
    lines: impl Iterator<Item = &'a str>,
    max: usize,
    mut counts: impl FnMut(&str) -> bool,
) -> Vec<String> {
    let is_long = |line: &str| line.chars().count() > max && line.trim_start().contains(' ');
    let numbered = lines.zip(1..).filter(|(line, _)| counts(line) && is_long(line));
    numbered.map(|(_, number)| format!("{}:{number}: more than {max} characters", shown(path))).collect()
}

#[test]
fn names_of_tests_are_short() {
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        let tests = text.split("test]").skip(1).chain(text.split("test(").skip(1));
        // The function begins within a few lines of its attribute.
        let names = tests.filter_map(|test| test.lines().take(4).find_map(|line| line.split_once("fn ")));
        let long = names.map(|(_, rest)| word(rest)).filter(|name| name.len() > TEST_NAME_MAX);
        found.extend(long.map(|name| format!("{}: {name}: more than {TEST_NAME_MAX}", shown(&path))));
    }
    nothing_in(&found);
}

#[test]
fn no_work_is_left_for_later() {
    // Written apart, so that this file does not find itself.
    let marks = [concat!("#[ig", "nore"), concat!("TO", "DO"), concat!("FIX", "ME"), concat!("todo", "!(")];
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        for (line, number) in text.lines().zip(1..) {
            let here = marks.iter().filter(|mark| line.contains(**mark));
            found.extend(here.map(|mark| format!("{}:{number}: {mark}: do it, or remove it", shown(&path))));
        }
    }
    nothing_in(&found);
}

/// Test code that delays on purpose: simulated clusters by tokio's paused clock, a proxy that injects delays,
/// and a benchmark that measures an idle replica.
const DELAYS_ON_PURPOSE: [&str; 8] = [
    "tests/bench-cluster/src/usage.rs",
    "tests/cluster/src/proxy/serve.rs",
    "tests/kit/src/api.rs",
    "tests/perturb/delay.rs",
    "tests/settle/others.rs",
    "tests/settle/trial.rs",
    "tests/steer/steerer.rs",
    "tests/steer/trial.rs",
];

/// Tests wait for a condition and not for a fixed time. Where nothing reports an event, they poll by
/// `interval`.
#[test]
fn no_test_sleeps() {
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        let path = shown(&path);
        if DELAYS_ON_PURPOSE.contains(&&*path) {
            continue;
        }
        let sleeps = tests_of(&path, &text).lines().filter(|line| is_sleep(line));
        found.extend(sleeps.map(|line| format!("{path}: {}: wait for the condition itself", line.trim())));
    }
    nothing_in(&found);
}

/// Whether a line waits for a fixed time: by a call of `sleep` or `sleep_until`, however it was imported, or
/// by one tick of an interval that begins later.
fn is_sleep(line: &str) -> bool {
    let calls = |name: &str| {
        let mut before = line.match_indices(name).map(|(at, _)| line[..at].chars().next_back());
        before.any(|before| before.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == '"')))
    };
    // Written apart, so that this file does not find itself.
    let sleeps = [concat!("sle", "ep("), concat!("sleep_", "until(")];
    sleeps.into_iter().any(calls) || line.contains(concat!("interval", "_at("))
}

#[test]
fn the_path_of_the_checkout_comes_from_a_watched_variable() {
    let call = concat!("env!(\"CARGO_MANIFEST", "_DIR\")");
    let found = rust_files().into_iter().filter(|(_, text)| text.contains(call));
    let told = found
        .map(|(path, _)| format!("{}: use BINDERY_CHECKOUT (.cargo/config.toml tells why)", shown(&path)));
    nothing_in(&told.collect::<Vec<_>>());
}

/// The tests in a file: all of it below a folder of tests and in `tests.rs`, else its unit tests.
fn tests_of<'a>(path: &str, text: &'a str) -> &'a str {
    if path.split('/').any(|part| part == "tests" || part == "tests.rs") {
        text
    } else {
        text.split_once("#[cfg(test)]").map_or("", |(_, tests)| tests)
    }
}

#[test]
fn every_source_file_is_compiled() {
    let files = rust_files();
    let mut found = Vec::new();
    for (file, _) in &files {
        // `foo/mod.rs` is the module `foo`, as `foo.rs` would be.
        let path = if file.ends_with("mod.rs") { &folder_of(file).with_extension("rs") } else { file };
        let name = path.file_stem().expect("a source file must have a name").to_string_lossy();
        let is_root = ["lib", "main", "build"].contains(&&*name);
        let declares =
            |text: &str| text.contains(&format!("mod {name};")) || text.contains(&format!("mod r#{name};"));
        let is_declared = || files.iter().any(|(other, text)| may_declare(other, path) && declares(text));
        if !is_root && !is_target(path, &name) && !is_declared() {
            found.push(format!("{} is not a module of its crate: declare it or remove it", shown(file)));
        }
    }
    nothing_in(&found);
}

/// Whether the manifest of the file's package names it as a target, or cargo finds it as one.
fn is_target(path: &Path, name: &str) -> bool {
    let folder = folder_of(path);
    let package = folder.ancestors().find(|folder| folder.join("Cargo.toml").is_file());
    let package = package.expect("every source file must belong to a package");
    let manifest = fs::read_to_string(package.join("Cargo.toml")).expect("a manifest must be readable");
    let is_named = manifest.contains(&format!("{name}.rs\""));
    is_named
        || ["tests", "benches", "examples", "src/bin"].iter().any(|targets| folder == package.join(targets))
}

/// Whether `other` is where the module in `path` would be declared: `foo.rs` for `foo/…`, or a file in the
/// same folder.
fn may_declare(other: &Path, path: &Path) -> bool {
    let folder = folder_of(path);
    other != path && (folder_of(other) == folder || other.with_extension("") == folder)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().expect("a source file must have a folder")
}
