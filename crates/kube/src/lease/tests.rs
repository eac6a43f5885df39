//! When a holder stands down.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::header::CONTENT_TYPE;
use http::{Request, Response};
use kube::client::Body;

use super::*;

fn answer(status: u16, body: Body) -> Response<Body> {
    Response::builder().status(status).header(CONTENT_TYPE, "application/json").body(body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_holder_stands_down_in_time_if_its_last_attempts_are_refused() {
    let duration = Duration::from_secs(16);
    let (namespace, name, identity) = ("ns".to_owned(), "lease".to_owned(), "a".to_owned());
    let settings = LeaseSettings { namespace, name, identity, duration };
    let requests = Arc::new(AtomicU32::new(0));
    let service = tower::service_fn(move |request: Request<Body>| {
        let nth = requests.fetch_add(1, Ordering::Relaxed);
        async move {
            Ok::<_, Infallible>(match nth {
                0 => answer(200, Body::from(br#"{"metadata": {}}"#.to_vec())),
                // The Lease as it is written.
                1 => answer(200, request.into_body()),
                2 | 3 => pending().await,
                _ => answer(500, Body::empty()),
            })
        }
    });
    let deadline = settings.deadline();
    let elector = Elector::new(kube::Client::new(service, "ns"), settings, watch::Sender::default());
    let (holds, mut held) = watch::channel(false);
    let running = tokio::spawn(elector.run(holds));
    held.wait_for(|held| *held).await.unwrap();
    let renewed = Instant::now();
    held.wait_for(|held| !held).await.unwrap();
    assert_eq!(renewed.elapsed().as_secs(), deadline.as_secs());
    running.abort();
}
