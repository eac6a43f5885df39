//! Metrics of admission.

use std::time::Duration;

use bindery_core::named_cases;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::request::ObjectKind;
use super::rules::{AdmissionRule, Level};
use super::steer::Steering;

/// Upper bounds of the buckets in seconds: a review takes some tens of microseconds, one that reads live some
/// milliseconds, and an API server waits at most 30 s.
const BUCKETS: [f64; 16] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5,
    1.0, 5.0, 30.0,
];

/// `N` labels, each with its value.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Metrics of admission. Clones share their counters.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    reviews: Family<Labels<2>, Counter>,
    findings: Family<Labels<2>, Counter>,
    faults: Family<Labels<1>, Counter>,
    shed: Counter,
    bad_requests: Counter,
    steering: Family<Labels<1>, Counter>,
    duration: Family<Labels<1>, Histogram, fn() -> Histogram>,
}

named_cases! {
    /// How a review ended.
    Outcome {
        /// Without findings.
        Allowed = "allowed";
        /// With warnings.
        Warned = "warned";
        /// With a denial.
        Denied = "denied";
        /// The object cannot matter; the request passed.
        Passed = "passed";
        /// The object could not be read; the request passed with a warning.
        Unreadable = "unreadable";
        /// Too many were in flight; the request passed with a warning.
        Shed = "shed";
        /// The review failed; the request passed with a warning.
        Faulted = "faulted";
    }
}

named_cases! {
    /// Why a review failed.
    FaultCause {
        /// The replica is starting.
        NotReady = "not_ready";
        /// The engine failed.
        Engine = "engine";
        /// A policy gave no answer.
        Policy = "policy";
        /// An object could not be read live.
        Read = "read";
        /// It took too long.
        Overdue = "overdue";
        /// It panicked.
        Bug = "bug";
    }
}

impl Default for AdmissionMetrics {
    /// All series at zero: an alert on a rate misses a series that begins with its first sample.
    fn default() -> Self {
        let metrics = Self {
            reviews: Family::default(),
            findings: Family::default(),
            faults: Family::default(),
            shed: Counter::default(),
            bad_requests: Counter::default(),
            steering: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        };
        for kind in ObjectKind::ALL {
            for outcome in Outcome::ALL {
                drop(metrics.reviews.get_or_create(&review_labels(kind, outcome)));
            }
            drop(metrics.duration.get_or_create(&[("kind", kind.name())]));
        }
        for rule in AdmissionRule::ALL {
            for level in [Level::Deny, Level::Warn] {
                drop(metrics.findings.get_or_create(&finding_labels(rule, level)));
            }
        }
        for cause in FaultCause::ALL {
            drop(metrics.faults.get_or_create(&[("cause", cause.name())]));
        }
        for steering in Steering::ALL {
            drop(metrics.steering.get_or_create(&[("outcome", steering.name())]));
        }
        metrics
    }
}

impl AdmissionMetrics {
    /// Registers these metrics; their names begin with `admission_`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("admission");
        let help = "Reviews of claims and volumes, by how they ended";
        registry.register("reviews", help, self.reviews.clone());
        registry.register("findings", "Findings of rules, by what they did", self.findings.clone());
        let help = "Reviews that failed, so that the request passed unseen";
        registry.register("faults", help, self.faults.clone());
        let help = "Requests that were not reviewed because too many were under way";
        registry.register("shed", help, self.shed.clone());
        registry.register("bad_requests", "Requests that were no reviews", self.bad_requests.clone());
        registry.register("steering", "Claims that were to be steered, by outcome", self.steering.clone());
        let help = "Time from a review's whole body to its answer";
        registry.register("duration_seconds", help, self.duration.clone());
    }

    pub(super) fn count_review(&self, kind: ObjectKind, outcome: Outcome, took: Duration) {
        self.reviews.get_or_create(&review_labels(kind, outcome)).inc();
        self.duration.get_or_create(&[("kind", kind.name())]).observe(took.as_secs_f64());
        if outcome == Outcome::Shed {
            self.shed.inc();
        }
    }

    pub(super) fn count_steering(&self, steering: Steering) {
        self.steering.get_or_create(&[("outcome", steering.name())]).inc();
    }

    pub(super) fn count_finding(&self, rule: AdmissionRule, level: Level) {
        self.findings.get_or_create(&finding_labels(rule, level)).inc();
    }

    pub(super) fn count_fault(&self, cause: FaultCause) {
        self.faults.get_or_create(&[("cause", cause.name())]).inc();
    }

    /// Counts a request whose body had no room in the budget.
    pub(super) fn count_shed_body(&self) {
        self.shed.inc();
    }

    pub(super) fn count_bad_request(&self) {
        self.bad_requests.inc();
    }
}

fn review_labels(kind: ObjectKind, outcome: Outcome) -> Labels<2> {
    [("kind", kind.name()), ("outcome", outcome.name())]
}

fn finding_labels(rule: AdmissionRule, level: Level) -> Labels<2> {
    [("rule", rule.name()), ("level", level.name())]
}
