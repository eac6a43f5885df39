//! The paths, and the server that answers them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::health::{Health, Probe};
use crate::server::{Limits, Server, Traffic};

/// Most connections at the same time. Kubelet, Prometheus and people need few, and what a process may open at
/// all is for the door.
const CONNECTIONS_MAX: usize = 64;
/// Longest time for an answer, and for reading it at the end: Prometheus waits no longer for one, unless told
/// to.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// The content type of the OpenMetrics text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

struct Face<H> {
    health: H,
    registry: Registry,
}

/// The paths of a binder whose health and metrics these are.
pub fn router<H: Health>(health: H, registry: Registry) -> Router {
    Router::new()
        .route("/livez", get(live::<H>))
        .route("/readyz", get(ready::<H>))
        .route("/metrics", get(metrics::<H>))
        .with_state(Arc::new(Face { health, registry }))
}

/// Answers on a listener until `shutdown`, without TLS. There are 64 connections at most: for one more, that
/// which has been silent for longest is closed. Requests that were begun are answered.
pub async fn serve(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()>) {
    let limits = Limits {
        connections_max: CONNECTIONS_MAX,
        request_max: REQUEST_MAX,
        drain: Duration::ZERO,
        ..Limits::default()
    };
    Server::new(listener, None, limits, Arc::<Traffic>::default()).serve(router, shutdown).await;
}

async fn live<H: Health>(State(face): State<Arc<Face<H>>>, RawQuery(query): RawQuery) -> Response {
    answer("livez", Probe::of(query.as_deref()).told("livez", &face.health.live(), Vec::new))
}

async fn ready<H: Health>(State(face): State<Arc<Face<H>>>, RawQuery(query): RawQuery) -> Response {
    let health = &face.health;
    answer("readyz", Probe::of(query.as_deref()).told("readyz", &health.ready(), || health.notes()))
}

async fn metrics<H: Health>(State(face): State<Arc<Face<H>>>) -> Response {
    let mut body = String::new();
    match text::encode(&mut body, &face.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn answer(path: &str, (well, text): (bool, String)) -> Response {
    if well {
        return text.into_response();
    }
    let why = text.trim_end().replace('\n', "; ");
    tracing::warn!(path, why, "a probe fails");
    (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use prometheus_client::metrics::counter::Counter;
    use tower::ServiceExt as _;

    use super::*;
    use crate::Check;

    struct Doctor(Result<(), String>);

    impl Health for Doctor {
        fn live(&self) -> Vec<Check> {
            Vec::new()
        }

        fn ready(&self) -> Vec<Check> {
            vec![Check { name: "lists", result: self.0.clone() }]
        }
    }

    async fn get(doctor: Doctor, path: &str) -> (StatusCode, String) {
        let mut registry = Registry::default();
        let counter = Counter::<u64>::default();
        registry.register("bindery_decisions", "Decisions made", counter.clone());
        counter.inc();
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router(doctor, registry).oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_ready_binder_says_ok() {
        assert_eq!(get(Doctor(Ok(())), "/readyz").await, (StatusCode::OK, "ok".to_owned()));
        let (_, verbose) = get(Doctor(Ok(())), "/readyz?verbose").await;
        assert_eq!(verbose, "[+]lists ok\nreadyz check passed\n");
    }

    #[tokio::test]
    async fn a_binder_that_is_not_ready_is_alive_all_the_same() {
        let doctor = || Doctor(Err("volumes are still listed".to_owned()));
        let (status, text) = get(doctor(), "/readyz").await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(text.contains("volumes are still listed"), "{text}");
        assert_eq!(get(doctor(), "/livez").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn metrics_are_in_the_text_format() {
        let (status, text) = get(Doctor(Ok(())), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("bindery_decisions_total 1\n") && text.ends_with("# EOF\n"), "{text}");
    }
}
