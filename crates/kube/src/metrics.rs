//! Metrics of the requests to the API server, named as client-go names them
//! (`k8s.io/component-base/metrics/prometheus/restclient`). There is one API server, so no label names it.

use http::{Method, StatusCode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

/// Upper bounds of the buckets, in seconds: client-go's.
const BUCKETS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// `code` of a request without an answer: client-go's.
const NO_ANSWER: &str = "<error>";

/// Counts and times requests. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct RequestMetrics {
    requests: Family<Labels<2>, Counter>,
    durations: Family<Labels<1>, Histogram, fn() -> Histogram>,
}

/// `N` labels, each with its value.
type Labels<const N: usize> = [(&'static str, String); N];

/// Counts its request when it is dropped: as unanswered, unless [`status`](Self::status) is set.
pub(crate) struct CountedRequest {
    metrics: RequestMetrics,
    method: Method,
    pub(crate) status: Option<StatusCode>,
}

/// Times its request until it is dropped.
pub(crate) struct Timed {
    metrics: RequestMetrics,
    method: Method,
    began: Instant,
}

impl RequestMetrics {
    pub(crate) fn new() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        Self { requests: Family::default(), durations: Family::new_with_constructor(histogram) }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "rest_client_requests",
            "Requests sent to the API server, watches included but for those of certificates",
            self.requests.clone(),
        );
        registry.register(
            "rest_client_request_duration_seconds",
            "Time from sending a request to the API server until all of its answer is there, watches \
             excluded",
            self.durations.clone(),
        );
    }

    pub(crate) fn count(&self, method: &Method) -> CountedRequest {
        CountedRequest { metrics: self.clone(), method: method.clone(), status: None }
    }

    /// Not used for watches.
    pub(crate) fn time(&self, method: &Method) -> Timed {
        Timed { metrics: self.clone(), method: method.clone(), began: Instant::now() }
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        let code = self.status.as_ref().map_or(NO_ANSWER, StatusCode::as_str).to_owned();
        let labels = [("code", code), ("method", self.method.to_string())];
        self.metrics.requests.get_or_create(&labels).inc();
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        let labels = [("verb", self.method.to_string())];
        self.metrics.durations.get_or_create(&labels).observe(self.began.elapsed().as_secs_f64());
    }
}
