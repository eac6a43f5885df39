//! Recorded cases on a real API server.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and tells what it left out"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Cases of each corpus that are tried, evenly spread over it, and the API servers that share them. Some
/// cannot be set on a real one. `BINDERY_SAMPLES` makes them so many times as large.
const SAMPLES: [(&str, usize, usize); 5] = [
    ("upstream-cases.jsonl.gz", 141, 4),
    ("single-step.jsonl.gz", 900, 1),
    ("settle.jsonl.gz", 350, 1),
    ("changed.jsonl.gz", 100, 2),
    ("values.jsonl.gz", 200, 1),
];
/// Least number of cases of a kind that pass: that many have to be possible.
const PASSED_MIN: [(&str, usize); 5] = [
    ("passed, 0 failed", 500),
    ("passed: settle", 100),
    ("passed: sync-claim", 250),
    ("passed: sync-volume", 120),
    ("passed: with API errors", 50),
];

#[test]
fn a_real_api_server_is_left_as_upstream_left_its_own() {
    let folder = Path::new(env!("BINDERY_CHECKOUT")).join("tests/conformance/corpora");
    let times = std::env::var("BINDERY_SAMPLES").map_or(1, |times| times.parse().unwrap());
    // Each on control planes of its own, at the same time: most of it is waiting.
    let running = SAMPLES.map(|(corpus, sample, clusters)| {
        let sample = times * sample;
        let mut command = Command::new(env!("CARGO_BIN_EXE_bindery-conformance"));
        command.args(["--against", "cluster", "--sample", &sample.to_string()]);
        command.args(["--clusters", &clusters.to_string()]).arg(folder.join(corpus));
        (corpus, command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    });
    let mut sums = BTreeMap::<String, usize>::new();
    for (corpus, child) in running {
        let output = child.wait_with_output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        println!("{corpus}:\n{printed}");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // Lines that begin with a number of cases; where none was judged, the command fails.
        for (cases, what) in printed.lines().filter_map(|line| line.split_once(' ')) {
            *sums.entry(what.to_owned()).or_default() += cases.parse::<usize>().unwrap();
        }
    }
    for (what, least) in PASSED_MIN {
        let sum = sums.get(what).copied().unwrap_or_default();
        assert!(sum >= least, "{sum} {what}: the samples are too small");
    }
}
