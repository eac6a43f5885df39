//! Metrics of admission.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::request::ObjectKind;
use super::rules::{AdmissionRule, Level};

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
    duration: Family<Labels<1>, Histogram, fn() -> Histogram>,
}

/// How a review ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Without findings.
    Allowed,
    /// With warnings.
    Warned,
    /// With a denial.
    Denied,
    /// The object cannot matter; the request passed.
    Passed,
    /// The object could not be read; the request passed with a warning.
    Unreadable,
    /// Too many were in flight; the request passed with a warning.
    Shed,
    /// The review failed; the request passed with a warning.
    Faulted,
}

/// Why a review failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultCause {
    /// The replica is starting.
    NotReady,
    /// The engine failed.
    Engine,
    /// An object could not be read live.
    Read,
    /// It took too long.
    Overdue,
    /// It panicked.
    Bug,
}

const OUTCOMES: [Outcome; 7] = [
    Outcome::Allowed,
    Outcome::Warned,
    Outcome::Denied,
    Outcome::Passed,
    Outcome::Unreadable,
    Outcome::Shed,
    Outcome::Faulted,
];

const CAUSES: [FaultCause; 5] =
    [FaultCause::NotReady, FaultCause::Engine, FaultCause::Read, FaultCause::Overdue, FaultCause::Bug];

impl Outcome {
    fn labels(self, kind: ObjectKind) -> Labels<2> {
        let name = match self {
            Self::Allowed => "allowed",
            Self::Warned => "warned",
            Self::Denied => "denied",
            Self::Passed => "passed",
            Self::Unreadable => "unreadable",
            Self::Shed => "shed",
            Self::Faulted => "faulted",
        };
        [("kind", kind.name()), ("outcome", name)]
    }
}

impl FaultCause {
    fn labels(self) -> Labels<1> {
        let name = match self {
            Self::NotReady => "not_ready",
            Self::Engine => "engine",
            Self::Read => "read",
            Self::Overdue => "overdue",
            Self::Bug => "bug",
        };
        [("cause", name)]
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
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        };
        for kind in ObjectKind::ALL {
            for outcome in OUTCOMES {
                drop(metrics.reviews.get_or_create(&outcome.labels(kind)));
            }
            drop(metrics.duration.get_or_create(&[("kind", kind.name())]));
        }
        for rule in AdmissionRule::ALL {
            for level in [Level::Deny, Level::Warn] {
                drop(metrics.findings.get_or_create(&finding_labels(rule, level)));
            }
        }
        for cause in CAUSES {
            drop(metrics.faults.get_or_create(&cause.labels()));
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
        let help = "Time from a review's whole body to its answer";
        registry.register("duration_seconds", help, self.duration.clone());
    }

    pub(super) fn count_review(&self, kind: ObjectKind, outcome: Outcome, took: Duration) {
        self.reviews.get_or_create(&outcome.labels(kind)).inc();
        self.duration.get_or_create(&[("kind", kind.name())]).observe(took.as_secs_f64());
        if outcome == Outcome::Shed {
            self.shed.inc();
        }
    }

    pub(super) fn count_finding(&self, rule: AdmissionRule, level: Level) {
        self.findings.get_or_create(&finding_labels(rule, level)).inc();
    }

    pub(super) fn count_fault(&self, cause: FaultCause) {
        self.faults.get_or_create(&cause.labels()).inc();
    }

    /// Counts a request whose body had no room in the budget.
    pub(super) fn count_shed_body(&self) {
        self.shed.inc();
    }

    pub(super) fn count_bad_request(&self) {
        self.bad_requests.inc();
    }
}

fn finding_labels(rule: AdmissionRule, level: Level) -> Labels<2> {
    [("rule", rule.name()), ("level", level.name())]
}
