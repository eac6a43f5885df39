//! Many connections that want nothing.

use std::time::Duration;

use bindery_kit::allow_files;
use bindery_webhook::server::Limits;
use tokio::io::AsyncReadExt as _;

use super::heads::{Heads, head_of_http1};
use super::world::{PATIENCE, Site, check};

const SILENT: usize = 10_000;
const CONNECTIONS_MAX: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_that_say_nothing_are_closed_and_hold_nobody_up() {
    // This process has both ends of those that are open.
    allow_files(SILENT + 2 * CONNECTIONS_MAX);
    let limits = Limits {
        connections_max: CONNECTIONS_MAX,
        // Longer than a machine that does much else may stop for.
        handshake_max: Duration::from_secs(8),
        ..Limits::default()
    };
    let site = Site::start_with(limits, None).await;
    // One that was there before.
    let mut call = site.client().call(site.address).await.unwrap();
    let mut streams = Vec::new();
    for number in 0..SILENT {
        streams.push(site.connect().await);
        assert!(site.traffic.connections() <= CONNECTIONS_MAX);
        if number % 500 == 0 {
            check(&call.ask("/validate", "review").await.unwrap());
            check(&site.client().ask(site.address).await.unwrap());
        }
    }
    assert!(site.traffic.shed() > 0);
    // Every one of them comes to its end, and the one that asks stays.
    for mut stream in streams {
        let closed = tokio::time::timeout(PATIENCE, stream.read(&mut [0])).await;
        assert!(matches!(closed.expect("it is closed"), Ok(0) | Err(_)));
    }
    check(&call.ask("/validate", "review").await.unwrap());
    site.until("one is left", |traffic| traffic.connections() == 1).await;
}

#[tokio::test]
async fn those_that_shake_hands_and_say_nothing_go_before_one_that_asks() {
    let limits = Limits { connections_max: 10, ..Limits::default() };
    let site = Site::start_with(limits, None).await;
    let mut call = site.client().call(site.address).await.unwrap();
    check(&call.ask("/validate", "review").await.unwrap());
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(site.client().greet(site.address).await.unwrap());
    }
    check(&call.ask("/validate", "review").await.unwrap());
    check(&site.client().ask(site.address).await.unwrap());
    assert!(site.traffic.connections() <= 10);
}

#[tokio::test]
async fn those_that_send_heads_and_no_bodies_go_before_one_that_asks() {
    const HEADS: usize = 40;
    let limits = Limits { connections_max: 10, ..Limits::default() };
    for is_http2 in [false, true] {
        let site = Site::start_with(limits, None).await;
        let mut call = site.client().call(site.address).await.unwrap();
        check(&call.ask("/validate", "review").await.unwrap());
        let (mut of_http1, mut of_http2) = (Vec::new(), Vec::new());
        for _ in 0..HEADS {
            if is_http2 {
                let mut heads = Heads::connect(site.client(), site.address).await;
                heads.send(heads.streams_max, heads.header_bytes_max).await;
                of_http2.push(heads);
            } else {
                of_http1.push(head_of_http1(site.client(), site.address).await);
            }
            // One that was there before, and one that has just come.
            check(&call.ask("/validate", "review").await.unwrap());
            check(&site.client().ask(site.address).await.unwrap());
        }
        // All but the last have gone, each for one that came.
        assert!(site.traffic.shed() >= u64::try_from(HEADS - limits.connections_max).unwrap());
        assert!(site.traffic.connections() <= limits.connections_max);
    }
}

#[tokio::test]
async fn nobody_who_awaits_an_answer_is_closed_for_another() {
    let limits = Limits { connections_max: 2, ..Limits::default() };
    let site = Site::start_with(limits, None).await;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let mut call = site.client().call(site.address).await.unwrap();
        waiting.push(tokio::spawn(async move { call.ask("/held", "review").await.unwrap() }));
    }
    site.until_came(2).await;
    assert!(site.client().ask(site.address).await.is_err());
    assert_eq!((site.traffic.connections(), site.traffic.shed()), (2, 1));
    site.held.add_permits(2);
    for answered in waiting {
        check(&answered.await.unwrap());
    }
    check(&site.client().ask(site.address).await.unwrap());
}
