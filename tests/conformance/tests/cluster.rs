//! Recorded cases on a real API server.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints what it left out"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// For each corpus, how many cases run, evenly spread, and how many API servers share them. `BINDERY_SAMPLES`
/// multiplies the number of cases.
const SAMPLES: [(&str, usize, usize); 5] = [
    ("upstream-cases.jsonl.gz", 141, 4),
    ("single-step.jsonl.gz", 900, 1),
    ("settle.jsonl.gz", 350, 1),
    ("changed.jsonl.gz", 100, 2),
    ("values.jsonl.gz", 200, 1),
];
/// The least number of cases of each kind that pass: some cases cannot run on a real API server.
const PASSED_MIN: [(&str, usize); 5] = [
    ("passed, 0 failed", 500),
    ("passed: settle", 100),
    ("passed: sync-claim", 250),
    ("passed: sync-volume", 120),
    ("passed: with API errors", 50),
];

#[test]
fn on_a_real_api_server_cases_end_as_recorded() {
    let folder = Path::new(env!("BINDERY_CHECKOUT")).join("tests/conformance/corpora");
    let times = std::env::var("BINDERY_SAMPLES").map_or(1, |times| times.parse().unwrap());
    // Each corpus has control planes of its own. All run at the same time, because most of the time is
    // waiting.
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
        // Each line begins with a number of cases.
        for (cases, what) in printed.lines().filter_map(|line| line.split_once(' ')) {
            *sums.entry(what.to_owned()).or_default() += cases.parse::<usize>().unwrap();
        }
    }
    for (what, least) in PASSED_MIN {
        let sum = sums.get(what).copied().unwrap_or_default();
        assert!(sum >= least, "{sum} {what}: the samples are too small");
    }
}
