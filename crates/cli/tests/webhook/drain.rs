//! The end of a replica.

use bindery_cluster::in_time;
use rustix::process::Signal;
use serde_json::json;
use tokio::net::TcpStream;

use super::webhooks::Webhooks;

/// Longer than the machine may pause.
const DRAIN: &str = "--webhook-drain=15";

#[tokio::test]
async fn reviews_are_answered_after_the_signal_while_connections_are_accepted() {
    let (webhooks, mut webhook) = Webhooks::start_with_replica(&[DRAIN]).await;
    let authorities = webhooks.authorities().await.unwrap();
    webhook.replica.until_leading().await;
    webhook.replica.signal(Signal::TERM);

    // The API server and new clients are answered for as long as they can connect.
    let mut answered = 0;
    let failure = async {
        loop {
            if let Err(error) = webhook.call(&authorities).await {
                return error;
            }
            if let Err(error) = webhooks.try_claim(json!({})).await {
                return error;
            }
            answered += 1;
        }
    };
    let failure = in_time("it ends", failure).await;
    let connected = TcpStream::connect(("127.0.0.1", webhook.port)).await;
    assert!(connected.is_err(), "{failure:?} while it serves: {}", webhook.replica.log());
    assert!(answered > 0, "{}", webhook.replica.log());
    assert!(webhook.replica.wait().await.success());
    println!("{answered} answers after the signal");
}
