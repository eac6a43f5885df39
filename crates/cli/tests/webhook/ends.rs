//! A replica that is told to end.

use std::slice;

use rustix::process::Signal;
use tokio::net::TcpStream;

use super::site::Site;
use super::world::PATIENCE;

/// For how many seconds it goes on: longer than the machine may pause.
const DRAIN: u64 = 15;

#[tokio::test]
async fn reviews_are_answered_after_the_signal_until_nobody_is_let_in_any_more() {
    let site = Site::start().await;
    let port = bindery_cluster::free_port().unwrap();
    let mut doorkeeper = site.open_for(port, DRAIN, "first", &["--certificate-name=127.0.0.1"]);
    site.apply(&[("first", doorkeeper.port)]).await.unwrap();
    let authorities = site.until_trusted().await;
    doorkeeper.replica.until_metrics("bindery_leader 1\n").await;
    site.until_asked(slice::from_ref(&doorkeeper)).await;
    doorkeeper.replica.signal(Signal::TERM);

    // The API server, and who connects anew: each is answered for as long as it is let in.
    let mut answered = 0;
    let failure = async {
        loop {
            if let Err(error) = doorkeeper.ask(&authorities).await {
                return error;
            }
            if let Err(error) = site.try_claim().await {
                return error;
            }
            answered += 1;
        }
    };
    let failure = tokio::time::timeout(PATIENCE, failure).await.expect("it ends");
    let connected = TcpStream::connect(("127.0.0.1", doorkeeper.port)).await;
    assert!(connected.is_err(), "{failure:?} while it serves: {}", doorkeeper.replica.log());
    assert!(answered > 0, "{}", doorkeeper.replica.log());
    assert!(doorkeeper.replica.wait().await.success());
    println!("{answered} answers after the signal");
}
