//! Recorded cases on a real API server.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and tells what it left out"
)]

use std::path::Path;
use std::process::{Command, Stdio};

/// Cases of each corpus that are tried, evenly spread over it, and the API servers that share them. Some cannot be set on a
/// real one. `BINDERY_SAMPLES` makes them so many times as large.
const SAMPLES: [(&str, usize, usize); 3] =
    [("upstream-cases.jsonl.gz", 141, 4), ("single-step.jsonl.gz", 900, 1), ("settle.jsonl.gz", 350, 1)];
/// Least number of cases that pass: that many have to be possible.
const PASSED_MIN: usize = 500;

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
    let mut all = 0;
    for (corpus, child) in running {
        let output = child.wait_with_output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        println!("{corpus}:\n{printed}");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let passed: usize = printed.lines().last().unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(passed > 0, "no case of {corpus} is possible on a real API server");
        all += passed;
    }
    assert!(all >= PASSED_MIN, "{all} cases passed: the samples are too small");
}
