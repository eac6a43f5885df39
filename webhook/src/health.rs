//! Health and metrics over HTTP: `/livez`, `/readyz` and `/metrics`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
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

use crate::server::{ConnectionStats, Limits, Server};

/// Most connections. Kubelet, Prometheus and people need few; most of the process' files are for the webhook.
const CONNECTIONS_MAX: usize = 64;
/// Longest time for an answer, and for a client to read it at shutdown: the default timeout of a scrape.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// The content type of the OpenMetrics text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A condition of a healthy process, and whether it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name, such as `lists`.
    pub name: &'static str,
    /// The error says why the condition does not hold.
    pub result: Result<(), String>,
}

/// The health of a binder.
pub trait Health: Send + Sync + 'static {
    /// Conditions of doing its work.
    fn ready(&self) -> Vec<Check>;

    /// Lines that `/readyz?verbose` adds. They fail nothing.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The routes of health and metrics. Each request to `/readyz` runs the checks; `/livez` only says that the
/// process answers.
pub fn router<H: Health>(health: H, registry: Registry) -> Router {
    let live = async |RawQuery(query): RawQuery| report("livez", query.as_deref(), &[], Vec::new);
    let ready = async |State(state): State<Arc<(H, Registry)>>, RawQuery(query): RawQuery| {
        report("readyz", query.as_deref(), &state.0.ready(), || state.0.notes())
    };
    let metrics = async |State(state): State<Arc<(H, Registry)>>| {
        let mut body = String::new();
        match text::encode(&mut body, &state.1) {
            Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], body).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    };
    Router::new()
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Arc::new((health, registry)))
}

/// Serves health and metrics without TLS until `shutdown`, on at most 64 connections, and finishes the
/// requests in flight.
pub async fn serve(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()>) {
    let limits = Limits {
        connections_max: CONNECTIONS_MAX,
        request_max: REQUEST_MAX,
        drain: Duration::ZERO,
        ..Limits::default()
    };
    Server::new(listener, None, limits, Arc::<ConnectionStats>::default()).serve(router, shutdown).await;
}

/// The answer to a probe, in the words of kube-apiserver, whose `?verbose` and `?exclude=NAME` it takes
/// (<https://kubernetes.io/docs/reference/using-api/health-checks/>).
fn report(
    path: &str,
    query: Option<&str>,
    checks: &[Check],
    notes: impl FnOnce() -> Vec<String>,
) -> Response {
    let pairs = query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let excluded: BTreeSet<_> =
        pairs.clone().filter(|(key, _)| *key == "exclude").map(|(_, name)| name).collect();
    let is_verbose = pairs.clone().any(|(key, _)| key == "verbose");
    let is_well = checks.iter().all(|check| check.result.is_ok() || excluded.contains(check.name));
    if is_well && !is_verbose {
        return "ok".into_response();
    }
    let mut text = String::new();
    for Check { name, result } in checks {
        // Writing to a string cannot fail.
        let _ = match result {
            _ if excluded.contains(name) => writeln!(text, "[+]{name} excluded: ok"),
            Ok(()) => writeln!(text, "[+]{name} ok"),
            Err(why) => writeln!(text, "[-]{name} failed: {why}"),
        };
    }
    if is_verbose {
        notes().into_iter().for_each(|note| text += &format!("[+]{note}\n"));
    }
    text += &format!("{path} check {}\n", if is_well { "passed" } else { "failed" });
    if is_well {
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

    /// A binder that is alive, and ready except for the Lease if `has_lease` is false.
    struct Binder {
        has_lease: bool,
    }

    impl Health for Binder {
        fn ready(&self) -> Vec<Check> {
            let lease = if self.has_lease { Ok(()) } else { Err("no replica leads".to_owned()) };
            vec![Check { name: "lists", result: Ok(()) }, Check { name: "lease", result: lease }]
        }

        fn notes(&self) -> Vec<String> {
            vec!["watches: none".to_owned()]
        }
    }

    async fn get(has_lease: bool, path: &str) -> (StatusCode, String) {
        let mut registry = Registry::default();
        registry.register("bindery_decisions", "Decisions made", Counter::<u64>::default());
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router(Binder { has_lease }, registry).oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn probes_are_answered_in_the_words_of_kube_apiserver() {
        let failed = "[+]lists ok\n[-]lease failed: no replica leads\nreadyz check failed\n";
        let excluded = "[+]lists ok\n[+]lease excluded: ok\n[+]watches: none\nreadyz check passed\n";
        let verbose = "[+]lists ok\n[+]lease ok\n[+]watches: none\nreadyz check passed\n";
        for (has_lease, path, text) in [
            (true, "/readyz", "ok"),
            (true, "/readyz?verbose", verbose),
            (false, "/readyz", failed),
            (false, "/readyz?exclude=lease", "ok"),
            (false, "/readyz?exclude=other&exclude=lease", "ok"),
            (false, "/readyz?verbose&exclude=lease", excluded),
            (false, "/readyz?exclude=lists", failed.replace("lists ok", "lists excluded: ok").as_str()),
            (false, "/readyz?exclude=lea", failed),
            (false, "/readyz?exclude=", failed),
            (false, "/readyz?exclude", failed),
            (false, "/livez", "ok"),
            (false, "/livez?verbose", "livez check passed\n"),
        ] {
            let is_well = text == "ok" || text.contains("passed");
            let status = if is_well { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
            assert_eq!(get(has_lease, path).await, (status, text.to_owned()), "{path}");
        }
    }

    #[tokio::test]
    async fn metrics_are_in_the_text_format() {
        let (status, text) = get(true, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("bindery_decisions_total 0\n") && text.ends_with("# EOF\n"), "{text}");
    }
}
