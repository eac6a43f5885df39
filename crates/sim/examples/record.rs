//! Records the answers of a real API server to the requests of the matrix test. Starts an empty server
//! without controllers, with the programs in `BINDERY_ETCD` and `BINDERY_KUBE_APISERVER`.
//!
//! ```sh
//! cargo run -p bindery-sim --example record > answers.jsonl && mv answers.jsonl crates/sim/tests/matrix/
//! ```

#![expect(clippy::print_stdout, reason = "the recording is its output")]

#[path = "../tests/matrix/driver.rs"]
mod driver;
#[path = "../tests/matrix/real.rs"]
mod real;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    for answer in real::answers().await? {
        println!("{answer}");
    }
    Ok(())
}
