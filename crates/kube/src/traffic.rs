//! What was asked of an API server, under the names of client-go's metrics
//! (`k8s.io/component-base/metrics/prometheus/restclient`): there is one server, so what it is called is no
//! label.

use http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

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
            "Requests sent to the API server, watches included but for those of certificates",
            self.requests.clone(),
        );
        registry.register(
            "rest_client_request_duration_seconds",
            "Time from sending a request to the API server until all of its answer is there, watches excluded",
            self.durations.clone(),
        );
    }

    /// A request is sent.
    pub(crate) fn asked(&self, method: &Method) -> Asked {
        Asked { traffic: self.clone(), method: method.clone(), status: None }
    }

    /// Starts to time a request; not used for watches.
    pub(crate) fn timing(&self, method: &Method) -> Timing {
        Timing { traffic: self.clone(), method: method.clone(), began: Instant::now() }
    }
}

/// A request, counted when this is dropped; it counts as unanswered if no answer was noted.
pub(crate) struct Asked {
    traffic: Traffic,
    method: Method,
    status: Option<StatusCode>,
}

impl Asked {
    pub(crate) fn answered(&mut self, status: Option<StatusCode>) {
        self.status = status;
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let code = self.status.as_ref().map_or(NO_ANSWER, StatusCode::as_str).to_owned();
        let labels = RequestLabels { code, method: self.method.to_string() };
        self.traffic.requests.get_or_create(&labels).inc();
    }
}

/// A request, measured until this is dropped, however it ends.
pub(crate) struct Timing {
    traffic: Traffic,
    method: Method,
    began: Instant,
}

impl Drop for Timing {
    fn drop(&mut self) {
        let labels = DurationLabels { verb: self.method.to_string() };
        self.traffic.durations.get_or_create(&labels).observe(self.began.elapsed().as_secs_f64());
    }
}
