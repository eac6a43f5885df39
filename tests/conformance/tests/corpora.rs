//! The committed corpora, with either engine deciding and the other one replaying every decision.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

/// Runs the committed corpora; `engine` decides.
fn passes(engine: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "there is no corpus in {}", folder.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_bindery-conformance"));
    let output = command.args(["--engine", engine]).args(files).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_component_decides_as_upstream_did() {
    passes("component");
}

#[test]
fn the_native_engine_decides_as_upstream_did() {
    passes("native");
}
