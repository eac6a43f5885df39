//! Records what a real API server answers to the requests of the matrix test, in an empty cluster without controllers.
//!
//! ```sh
//! KUBECONFIG=FILE cargo run -p bindery-sim --example record > crates/sim/tests/matrix/answers.jsonl
//! ```

#![expect(clippy::print_stdout, reason = "the recording is its output")]

#[path = "../tests/matrix/driver.rs"]
mod driver;

use kube::{Client, Config};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = Config::infer().await?;
    // Refusals are what is recorded.
    config.default_retry = false;
    let client = Client::try_from(config)?;
    let mut memory = driver::Memory::default();
    for step in driver::steps() {
        let answer = driver::send(&client, &step, &mut memory).await;
        println!("{}", json!({"id": step.id, "answer": answer}));
    }
    Ok(())
}
