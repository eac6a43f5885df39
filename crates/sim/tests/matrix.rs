//! Compares the simulator with a real kube-apiserver.
//!
//! `matrix/requests.jsonl` has the requests in order, `matrix/answers.jsonl` the answers of kube-apiserver
//! (recorded by `examples/record.rs`), and `matrix/differences.jsonl` the requests that the simulator answers
//! differently on purpose, each with the reason.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "matrix/driver.rs"]
mod driver;
#[path = "matrix/real.rs"]
mod real;

use std::collections::BTreeSet;

use bindery_sim::{Sim, SimOptions};
use kube::Client;
use serde_json::Value;

const REQUESTS_MIN: usize = 300;

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

struct Simulated(Sim);

impl driver::Server for Simulated {
    async fn client(&self) -> Client {
        Client::new(self.0.service(), "default")
    }

    async fn compact(&mut self) {
        self.0.compact();
    }
}

#[tokio::test(start_paused = true)]
async fn the_simulator_answers_each_request_as_kube_apiserver_did() {
    // The recorded server ran without controllers.
    let sim = Sim::new(SimOptions { controllers: false, ..SimOptions::default() });
    let answers = driver::answers(&mut Simulated(sim)).await;
    let differences = lines(include_str!("matrix/differences.jsonl"));
    let listed = differences.map(|line| line["id"].as_str().unwrap().to_owned()).collect();
    only_as_listed(&answers, &listed);
}

#[tokio::test]
async fn kube_apiserver_still_answers_each_request_as_recorded() {
    only_as_listed(&real::answers().await.unwrap(), &BTreeSet::new());
}

/// Asserts that exactly the listed answers differ from the recorded ones.
fn only_as_listed(answers: &[Value], listed: &BTreeSet<String>) {
    let recorded: Vec<Value> = lines(include_str!("matrix/answers.jsonl")).collect();
    assert!(answers.len() >= REQUESTS_MIN, "only {} requests were compared", answers.len());
    assert_eq!(answers.len(), recorded.len(), "the answers were recorded for other requests");
    let mut differences = String::new();
    for ((step, answer), mut expected) in driver::steps().iter().zip(answers).zip(recorded) {
        // An older driver may have recorded the answers.
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
