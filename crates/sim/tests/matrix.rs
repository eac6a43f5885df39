//! The simulator answers as a real kube-apiserver did.
//!
//! `matrix/requests.jsonl` holds requests in their order, `matrix/answers.jsonl` what kube-apiserver answered to them
//! (recorded by `examples/record.rs`), `matrix/differences.jsonl` the requests that the simulator answers otherwise on
//! purpose, each with the reason.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "matrix/driver.rs"]
mod driver;

use std::collections::BTreeMap;

use bindery_sim::{Sim, SimOptions};
use kube::Client;
use serde_json::Value;

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

#[tokio::test(start_paused = true)]
async fn as_kube_apiserver() {
    // The recorded server had no controllers beside it.
    let sim = Sim::new(SimOptions { controllers: false, ..SimOptions::default() });
    let client = Client::new(sim.service(), "default");
    let answers = lines(include_str!("matrix/answers.jsonl"));
    let reasons: BTreeMap<String, Value> = lines(include_str!("matrix/differences.jsonl"))
        .map(|line| (line["id"].as_str().unwrap().to_owned(), line["why"].clone()))
        .collect();
    let mut memory = driver::Memory::default();
    let (mut differences, mut compared) = (String::new(), 0);
    for (step, mut expected) in driver::steps().iter().zip(answers) {
        // What was recorded by an older driver is brought into the form of this one.
        driver::normalise(&mut expected["answer"]);
        let answer = driver::send(&client, step, &mut memory).await;
        let same = answer == expected["answer"];
        assert_eq!(expected["id"], step.id.as_str(), "the answers were recorded for other requests");
        compared += 1;
        if same && reasons.contains_key(&step.id) {
            differences.push_str(&format!("{}: listed as different, but the same\n", step.id));
        } else if !same && !reasons.contains_key(&step.id) {
            differences.push_str(&format!(
                "{}: {}\n  real {}\n  sim  {answer}\n",
                step.id, step.request, expected["answer"]
            ));
        }
    }
    assert!(compared >= 300, "only {compared} requests were compared");
    assert!(differences.is_empty(), "{differences}");
}
