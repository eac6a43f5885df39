//! What the door counts.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::rules::{DoorRule, Level};
use super::subject::Kind;

/// Upper bounds of the buckets, in seconds: a review takes some tens of microseconds, one that reads live
/// some milliseconds, and the API server waits 30 s at most.
const BUCKETS: [f64; 16] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5,
    1.0, 5.0, 30.0,
];

/// Metrics of the door. Clones share their counters.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    reviews: Family<ReviewLabels, Counter>,
    findings: Family<FindingLabels, Counter>,
    faults: Family<FaultLabels, Counter>,
    shed: Counter,
    bad_requests: Counter,
    duration: Family<KindLabels, Histogram, fn() -> Histogram>,
}

/// How a review ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    /// Nothing was wrong.
    Allowed,
    /// It passed with a warning.
    Warned,
    /// It was denied.
    Denied,
    /// It could not matter and passed.
    Passed,
    /// Its object could not be read; it passed with a warning.
    Unreadable,
    /// It passed with a warning because too many were under way.
    Shed,
    /// It passed with a warning because the review failed.
    Faulted,
}

/// Why a review failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum FaultCause {
    /// The lists are not complete.
    NotReady,
    /// The engine failed.
    Engine,
    /// An object that the review depends on could not be read.
    Read,
    /// It took too long.
    Overdue,
    /// Bindery has a bug.
    Bug,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FindingLabels {
    rule: &'static str,
    level: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FaultLabels {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

impl Ending {
    const ALL: [Self; 7] = [
        Self::Allowed,
        Self::Warned,
        Self::Denied,
        Self::Passed,
        Self::Unreadable,
        Self::Shed,
        Self::Faulted,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Warned => "warned",
            Self::Denied => "denied",
            Self::Passed => "passed",
            Self::Unreadable => "unreadable",
            Self::Shed => "shed",
            Self::Faulted => "faulted",
        }
    }
}

impl FaultCause {
    const ALL: [Self; 5] = [Self::NotReady, Self::Engine, Self::Read, Self::Overdue, Self::Bug];

    fn name(self) -> &'static str {
        match self {
            Self::NotReady => "not_ready",
            Self::Engine => "engine",
            Self::Read => "read",
            Self::Overdue => "overdue",
            Self::Bug => "bug",
        }
    }
}

impl Default for AdmissionMetrics {
    /// Every series is there from the start, at zero: an alert on a rate misses what begins with its first
    /// sample.
    fn default() -> Self {
        let metrics = Self {
            reviews: Family::default(),
            findings: Family::default(),
            faults: Family::default(),
            shed: Counter::default(),
            bad_requests: Counter::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        };
        for kind in Kind::ALL {
            for ending in Ending::ALL {
                let labels = ReviewLabels { kind: kind.name(), outcome: ending.name() };
                drop(metrics.reviews.get_or_create(&labels));
            }
            drop(metrics.duration.get_or_create(&KindLabels { kind: kind.name() }));
        }
        for rule in DoorRule::ALL {
            for level in [Level::Deny, Level::Warn] {
                let labels = FindingLabels { rule: rule.name(), level: level.name() };
                drop(metrics.findings.get_or_create(&labels));
            }
        }
        for cause in FaultCause::ALL {
            drop(metrics.faults.get_or_create(&FaultLabels { cause: cause.name() }));
        }
        metrics
    }
}

impl AdmissionMetrics {
    /// Has a registry tell these metrics; their names begin with `admission_`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("admission");
        let help = "Reviews of claims and volumes, by how they ended";
        registry.register("reviews", help, self.reviews.clone());
        let help = "What rules have found, by what became of it";
        registry.register("findings", help, self.findings.clone());
        let help = "Reviews that failed, so that the request passed unseen";
        registry.register("faults", help, self.faults.clone());
        let help = "Requests that were not reviewed because too many were under way";
        registry.register("shed", help, self.shed.clone());
        let help = "Requests that were no reviews";
        registry.register("bad_requests", help, self.bad_requests.clone());
        let help = "Time from a review's whole body to its answer";
        registry.register("duration_seconds", help, self.duration.clone());
    }

    pub(super) fn ended(&self, kind: Kind, ending: Ending, took: Duration) {
        self.reviews.get_or_create(&ReviewLabels { kind: kind.name(), outcome: ending.name() }).inc();
        self.duration.get_or_create(&KindLabels { kind: kind.name() }).observe(took.as_secs_f64());
        if ending == Ending::Shed {
            self.shed.inc();
        }
    }

    pub(super) fn found(&self, rule: DoorRule, level: Level) {
        self.findings.get_or_create(&FindingLabels { rule: rule.name(), level: level.name() }).inc();
    }

    pub(super) fn faulted(&self, cause: FaultCause) {
        self.faults.get_or_create(&FaultLabels { cause: cause.name() }).inc();
    }

    /// A body was not even read, because too many were under way.
    pub(super) fn turned_away(&self) {
        self.shed.inc();
    }

    pub(super) fn bad_request(&self) {
        self.bad_requests.inc();
    }
}
