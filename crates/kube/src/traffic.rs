//! What was asked of an API server, under the names of client-go's metrics (`k8s.io/component-base/metrics/prometheus/restclient`):
//! there is one server, so what it is called is no label.

use std::time::Duration;

use http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds of the buckets, in seconds: client-go's.
const BUCKETS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// In place of a status where there was no answer: client-go's.
const NO_ANSWER: &str = "<error>";

/// Requests by what became of them, and how long they took. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    requests: Family<RequestLabels, Counter>,
    durations: Family<DurationLabels, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    method: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: String,
}

impl Traffic {
    pub(crate) fn new() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        Self { requests: Family::default(), durations: Family::new_with_constructor(histogram) }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "rest_client_requests",
            "Requests sent to the API server, watches included",
            self.requests.clone(),
        );
        registry.register(
            "rest_client_request_duration_seconds",
            "Time from sending a request to the API server until all of its answer is there, watches excluded",
            self.durations.clone(),
        );
    }

    /// A request was answered, or not.
    pub(crate) fn ended(&self, method: &Method, status: Option<StatusCode>) {
        let code = status.as_ref().map_or(NO_ANSWER, StatusCode::as_str).to_owned();
        self.requests.get_or_create(&RequestLabels { code, method: method.to_string() }).inc();
    }

    /// A request that is no watch has ended after so long, however it did.
    pub(crate) fn took(&self, method: &Method, duration: Duration) {
        let labels = DurationLabels { verb: method.to_string() };
        self.durations.get_or_create(&labels).observe(duration.as_secs_f64());
    }
}
