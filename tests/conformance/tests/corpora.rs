//! The committed corpora. Each engine decides all cases, and the other one decides again from the same
//! answers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use bindery_conformance::case;

/// Runs every case of the committed corpora with these arguments.
fn passes(arguments: &[&str]) {
    let folder = Path::new(env!("BINDERY_CHECKOUT")).join("tests/conformance/corpora");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "there is no corpus in {}", folder.display());
    let counts: Vec<usize> = files.iter().map(|file| case::lines(file).unwrap().len()).collect();
    assert!(counts.iter().all(|lines| *lines > 0), "a corpus is empty: {counts:?} lines in {files:?}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bindery-conformance"));
    let output = command.args(arguments).args(files).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let every = format!("{} passed, 0 failed", counts.iter().sum::<usize>());
    assert_eq!(printed.lines().last(), Some(&*every), "not every case was judged");
}

#[test]
fn the_component_decides_as_upstream_did() {
    passes(&["--engine", "component"]);
}

#[test]
fn the_native_engine_decides_as_upstream_did() {
    passes(&["--engine", "native"]);
}

#[test]
fn a_policy_that_allows_everything_changes_no_decision() {
    passes(&["--engine", "native", "--allow-all"]);
}
