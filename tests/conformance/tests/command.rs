//! The output and the exit status of the runner.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use bindery_kit::json;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The exit status, standard output and standard error.
struct Ended {
    status: Option<i32>,
    printed: String,
    complained: String,
}

fn run(arguments: &[&str], files: &[&Path]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bindery-conformance"));
    let output = command.args(arguments).args(files).output().unwrap();
    Ended {
        status: output.status.code(),
        printed: String::from_utf8(output.stdout).unwrap(),
        complained: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A case that binds a claim to a volume.
fn binding() -> Value {
    let volume = |claim_ref: Value, annotations: Value, phase: &str| {
        let metadata = json!({"uid": "uid-v", "annotations": annotations});
        json::volume(
            "v",
            json!({"metadata": metadata, "spec": {"claimRef": claim_ref}, "status": {"phase": phase}}),
        )
    };
    let claim = |volume: Value, annotations: Value, status: Value| {
        let metadata = json!({"uid": "uid-c", "annotations": annotations});
        json::claim("c", json!({"metadata": metadata, "spec": {"volumeName": volume}, "status": status}))
    };
    let by_controller = "pv.kubernetes.io/bound-by-controller";
    let bound = json!({by_controller: "yes", "pv.kubernetes.io/bind-completed": "yes"});
    let claim_ref = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "namespace": "default", "name": "c", "uid": "uid-c",
    });
    let status =
        json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1024Mi"}});
    json!({
        "id": "one",
        "call": "sync-claim c",
        "initial": {
            "volumes": [volume(Value::Null, Value::Null, "Available")],
            "claims": [claim(Value::Null, Value::Null, json!({"phase": "Pending"}))],
        },
        "final": {
            "volumes": [volume(claim_ref, json!({by_controller: "yes"}), "Bound")],
            "claims": [claim(json!("v"), bound, status)],
        },
        "plugin": null,
        "events": [],
        "fails": false,
    })
}

fn corpus(folder: &TempDir, lines: &[String]) -> PathBuf {
    let path = folder.path().join("corpus.jsonl");
    fs::write(&path, lines.join("\n")).unwrap();
    path
}

#[test]
fn a_case_that_agrees_passes_plain_or_gzip_under_any_file_name() {
    let folder = TempDir::new().unwrap();
    let plain = corpus(&folder, &[binding().to_string()]);
    let gzip = folder.path().join("no-suffix");
    let mut encoder = GzEncoder::new(fs::File::create(&gzip).unwrap(), Compression::fast());
    writeln!(encoder, "{}", binding()).unwrap();
    encoder.finish().unwrap();
    let ended = run(&[], &[&plain, &gzip]);
    assert_eq!((ended.status, &*ended.printed), (Some(0), "2 passed, 0 failed\n"), "{}", ended.complained);
}

#[test]
fn a_difference_names_the_case_the_field_and_both_values() {
    let folder = TempDir::new().unwrap();
    let mut case = binding();
    case["final"]["volumes"][0]["status"]["phase"] = json!("Released");
    let ended = run(&[], &[&corpus(&folder, &[case.to_string()])]);
    assert_eq!(ended.status, Some(1));
    let expected = "FAILED one (corpus.jsonl:1)\n  \
                    volume v.status.phase: upstream \"Released\", here \"Bound\"\n0 passed, 1 failed\n";
    assert_eq!(ended.printed, expected);
}

#[test]
fn given_an_engine_that_chooses_otherwise_its_case_and_fields_are_told() {
    let engine = std::env::var("BINDERY_EXAMPLE_ENGINE").expect("`cargo xtask test` builds the engine");
    let folder = TempDir::new().unwrap();
    let same = binding();
    let mut other = binding();
    other["id"] = json!("two");
    let metadata = json!({"uid": "uid-large"});
    let spec = json!({"capacity": {"storage": "9Gi"}});
    let large =
        json::volume("large", json!({"metadata": metadata, "spec": spec, "status": {"phase": "Available"}}));
    for moment in ["initial", "final"] {
        other[moment]["volumes"].as_array_mut().unwrap().push(large.clone());
    }
    let path = corpus(&folder, &[same.to_string(), other.to_string()]);
    assert_eq!(run(&["--engine", "component"], &[&path]).status, Some(0));
    let ended = run(&["--engine", &engine], &[&path]);
    assert_eq!(ended.status, Some(1), "{}", ended.complained);
    let told = ended.printed.lines().next();
    assert_eq!(told, Some("FAILED two (corpus.jsonl:2)"), "{}", ended.printed);
    let volume = "\n  claim c.spec.volumeName: upstream \"v\", here \"large\"\n";
    assert!(ended.printed.contains(volume), "{}", ended.printed);
    assert!(ended.printed.ends_with("\n1 passed, 1 failed\n"), "{}", ended.printed);
}

#[test]
fn verbose_adds_the_whole_trace() {
    let folder = TempDir::new().unwrap();
    let mut case = binding();
    case["fails"] = json!(true);
    let path = corpus(&folder, &[case.to_string()]);
    let (terse, verbose) = (run(&[], &[&path]), run(&["-v"], &[&path]));
    assert_eq!((terse.status, verbose.status), (Some(1), Some(1)));
    assert!(!terse.printed.contains("reserve volume v"), "{}", terse.printed);
    for write in ["reserve volume v: done", "bind claim default/c: done", "set claim status default/c: done"]
    {
        assert!(verbose.printed.contains(write), "no {write:?} in {}", verbose.printed);
    }
}

#[test]
fn a_line_that_is_not_a_case_fails_alone() {
    let folder = TempDir::new().unwrap();
    let lines = ["not JSON".to_owned(), binding().to_string(), r#"{"id": "no world"}"#.to_owned()];
    let ended = run(&[], &[&corpus(&folder, &lines)]);
    assert_eq!(ended.status, Some(1));
    assert!(ended.printed.contains("FAILED not a case (corpus.jsonl:1)\n  the line is not a case in JSON"));
    assert!(ended.printed.contains("FAILED not a case (corpus.jsonl:3)"), "{}", ended.printed);
    assert!(ended.printed.ends_with("1 passed, 2 failed\n"), "{}", ended.printed);
}

#[test]
fn an_unknown_call_is_answered_by_the_known_ones() {
    let folder = TempDir::new().unwrap();
    let mut case = binding();
    case["call"] = json!("sync-node n");
    let ended = run(&[], &[&corpus(&folder, &[case.to_string()])]);
    assert_eq!(ended.status, Some(1));
    assert!(ended.printed.contains("is none of: sync-claim NAME, sync-volume NAME, settle"));
}

#[test]
fn a_missing_corpus_or_engine_is_named() {
    let ended = run(&[], &[Path::new("/nonexistent/corpus")]);
    assert_eq!((ended.status, &*ended.printed), (Some(2), ""));
    assert!(
        ended.complained.starts_with("error: cannot open corpus /nonexistent/corpus"),
        "{}",
        ended.complained
    );
    let ended = run(&["--component", "/nonexistent/engine"], &[Path::new("/nonexistent/corpus")]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.complained.contains("cannot load the engine /nonexistent/engine"), "{}", ended.complained);
}

#[test]
fn a_run_that_judges_no_case_fails() {
    let folder = TempDir::new().unwrap();
    let full = corpus(&folder, &[binding().to_string()]);
    let empty = folder.path().join("empty.jsonl");
    fs::write(&empty, "\n\n").unwrap();
    for (arguments, file, why) in [
        (&[][..], &empty, "no case was judged: the files hold none; give a corpus of JSON lines"),
        (
            &["--only", "two"],
            &full,
            "no case was judged: no id contains \"two\"; give another --only, or other files",
        ),
    ] {
        let ended = run(arguments, &[file]);
        let expected = (Some(2), "0 passed, 0 failed\n", format!("error: {why}\n"));
        assert_eq!((ended.status, &*ended.printed, ended.complained), expected);
    }
    // An empty file beside another one changes nothing.
    assert_eq!(run(&[], &[&empty, &full]).status, Some(0));
}
