//! The simulator answers as a real kube-apiserver did, and as it does.
//!
//! `matrix/requests.jsonl` holds requests in their order, `matrix/answers.jsonl` what kube-apiserver answered
//! to them (recorded by `examples/record.rs`), `matrix/differences.jsonl` the requests that the simulator
//! answers otherwise on purpose, each with the reason.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "matrix/driver.rs"]
mod driver;
#[path = "matrix/real.rs"]
mod real;

use std::collections::BTreeSet;

use bindery_sim::{Sim, SimOptions};
use kube::Client;
use serde_json::Value;

/// Least number of requests that are compared.
const REQUESTS_MIN: usize = 300;

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

struct Simulated(Sim);

impl driver::Server for Simulated {
    async fn client(&self) -> Client {
        Client::new(self.0.service(), "default")
    }

    async fn forget(&mut self) {
        self.0.compact();
    }
}

#[tokio::test(start_paused = true)]
async fn as_kube_apiserver() {
    // The recorded server had no controllers beside it.
    let sim = Sim::new(SimOptions { controllers: false, ..SimOptions::default() });
    let answers = driver::answers(&mut Simulated(sim)).await;
    let differences = lines(include_str!("matrix/differences.jsonl"));
    let listed = differences.map(|line| line["id"].as_str().unwrap().to_owned()).collect();
    only_as_listed(&answers, &listed);
}

/// What was recorded is what this version of Kubernetes answers.
#[tokio::test]
async fn kube_apiserver_answers_as_it_was_recorded() {
    only_as_listed(&real::answers().await.unwrap(), &BTreeSet::new());
}

/// The answers differ from the recorded ones where that is listed, and nowhere else.
fn only_as_listed(answers: &[Value], listed: &BTreeSet<String>) {
    let recorded: Vec<Value> = lines(include_str!("matrix/answers.jsonl")).collect();
    assert!(answers.len() >= REQUESTS_MIN, "only {} requests were compared", answers.len());
    assert_eq!(answers.len(), recorded.len(), "the answers were recorded for other requests");
    let mut differences = String::new();
    for ((step, answer), mut expected) in driver::steps().iter().zip(answers).zip(recorded) {
        // What was recorded by an older driver is brought into the form of this one.
        driver::normalise(&mut expected["answer"]);
        assert_eq!(expected["id"], step.id.as_str(), "the answers were recorded for other requests");
        match (answer["answer"] == expected["answer"], listed.contains(&step.id)) {
            (true, true) => {
                differences.push_str(&format!("{}: listed as different, but the same\n", step.id));
            }
            (false, false) => differences.push_str(&format!(
                "{}: {}\n  recorded {}\n  answered {}\n",
                step.id, step.request, expected["answer"], answer["answer"]
            )),
            _ => {}
        }
    }
    assert!(differences.is_empty(), "{differences}");
}
