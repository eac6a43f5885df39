//! What a policy has done since the start of the process.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bindery_core::{Text, Timestamp, named_cases};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use crate::kept::Verdict;
use crate::metadata::REASONS_MAX;
use crate::shadow::line;
use crate::{AnswerCache, Chain, Judged, Metadata, PolicyFault, Probation, Wish};

/// Upper bounds of the buckets in seconds: a matcher in Rust takes some tens of microseconds, one that
/// contains an interpreter some milliseconds, and a call of a component ends after 250 ms of
/// processor time.
const BUCKETS: [f64; 10] = [0.000_025, 0.000_1, 0.000_25, 0.001, 0.002_5, 0.01, 0.025, 0.1, 0.25, 1.0];

/// What a policy has done since the start of the process. Clones count together.
#[derive(Clone, Debug)]
pub struct PolicyMetrics {
    /// How long its matcher took, each time that it was asked to narrow or to judge rows.
    pub duration: Histogram,
    /// How often it was asked and answered: how often `duration` was observed, which cannot be read from it.
    pub calls: Counter,
    /// Rows that it has judged.
    pub rows: Counter,
    /// Decisions that ended because their claim waits for it.
    pub waits: Counter,
    /// Decisions that picked a volume although there were more candidates than it scores.
    pub unscored: Counter,
    /// Rows that it has rejected, or volumes whose reclaim policy it overrides, by the reason's place.
    rejected: Vec<Counter>,
    faults: [Counter; FaultCause::ALL.len()],
    /// The last of its faults.
    pub last_fault: LatestFault,
    /// The first calls of its module.
    pub probation: Probation,
}

/// The last call of a module that gave no answer. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct LatestFault(Arc<Mutex<Option<(Timestamp, Text)>>>);

impl LatestFault {
    /// When it was, and what happened, in one line.
    pub fn get(&self) -> Option<(Timestamp, Text)> {
        self.0.lock().clone()
    }

    pub(crate) fn set(&self, fault: &impl ToString) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Timestamp::try_from(since.as_secs()).unwrap_or(Timestamp::MAX);
        *self.0.lock() = Some((now, line(&fault.to_string())));
    }
}

/// A policy with what it has done, for metrics.
pub struct Activity<'a> {
    /// Its name.
    pub name: &'a Text,
    /// What it says about itself; `None` if its module could not be loaded.
    pub metadata: Option<&'a Metadata>,
    /// Units of fuel that it has used.
    pub fuel: u64,
    /// What it has done.
    pub metrics: &'a PolicyMetrics,
    /// Number of its verdicts that are kept.
    pub verdicts_kept: usize,
}

named_cases! {
    /// Why a policy gave no answer.
    FaultCause {
        /// It trapped.
        Trapped = "trapped";
        /// It exceeded a limit.
        Exhausted = "exhausted";
        /// Its answer has no meaning.
        BadAnswer = "bad_answer";
        /// It could not be run.
        Unavailable = "unavailable";
    }
}

impl Default for PolicyMetrics {
    fn default() -> Self {
        Self {
            duration: Histogram::new(BUCKETS),
            calls: Counter::default(),
            rows: Counter::default(),
            waits: Counter::default(),
            unscored: Counter::default(),
            rejected: std::iter::repeat_with(Counter::default).take(REASONS_MAX).collect(),
            faults: Default::default(),
            last_fault: LatestFault::default(),
            probation: Probation::default(),
        }
    }
}

impl PolicyMetrics {
    /// Rows that it has rejected, or volumes whose reclaim policy it overrides, for each declared reason in
    /// order.
    pub fn rejected(&self) -> impl Iterator<Item = u64> {
        self.rejected.iter().map(Counter::get)
    }

    /// How often it gave no answer.
    pub fn faults(&self, cause: FaultCause) -> u64 {
        self.faults[cause as usize].get()
    }

    /// Counts on from what an earlier generation with the same module has done; its first calls count anew.
    pub fn continue_from(&mut self, earlier: &Self) {
        *self = Self { probation: self.probation.clone(), ..earlier.clone() };
    }

    pub(crate) fn took(&self, time: Duration) {
        self.calls.inc();
        self.duration.observe(time.as_secs_f64());
    }

    pub(crate) fn judged(&self, verdicts: &[Verdict]) {
        self.rows.inc_by(verdicts.len() as u64);
        for verdict in verdicts {
            if let Verdict::Rejected(reason) = verdict
                && let Some(count) = self.rejected.get(*reason as usize)
            {
                count.inc();
            }
        }
    }

    /// Counts an answer of a reclaimer about a volume.
    pub(crate) fn judged_released(&self, Judged { wish, reason }: &Judged) {
        let verdict = if *wish == Wish::ByPolicy { Verdict::Allowed(0) } else { Verdict::Rejected(*reason) };
        self.judged(&[verdict]);
    }

    pub(crate) fn failed(&self, fault: &PolicyFault) {
        self.faults[fault.cause() as usize].inc();
        self.last_fault.set(fault);
    }

    /// Counts a call among the first ones, if it was made for a sync.
    pub(crate) fn on_probation<T>(&self, namespace: Option<&Text>, answer: &Result<T, PolicyFault>) {
        if let Some(namespace) = namespace
            && answer.as_ref().err().is_none_or(PolicyFault::is_of_module)
        {
            self.probation.record(namespace, answer.is_err());
        }
    }
}

impl Chain {
    /// All policies with what they have done.
    pub fn activities(&self, kept: &AnswerCache) -> impl Iterator<Item = Activity<'_>> {
        let kept = kept.verdicts();
        let matchers = self.policies().iter().enumerate().map(move |(place, policy)| {
            let matcher = policy.matcher.as_ref().ok();
            Activity {
                name: &policy.name,
                metadata: matcher.map(|matcher| matcher.metadata()),
                fuel: matcher.map_or(0, |matcher| matcher.fuel()),
                metrics: &policy.metrics,
                verdicts_kept: kept.get(&place).copied().unwrap_or_default(),
            }
        });
        let reclaimers = self.reclaimers().iter().map(|rule| {
            let reclaimer = rule.reclaimer.as_ref().ok();
            Activity {
                name: &rule.name,
                metadata: reclaimer.map(|reclaimer| reclaimer.metadata()),
                fuel: reclaimer.map_or(0, |reclaimer| reclaimer.fuel()),
                metrics: &rule.metrics,
                verdicts_kept: 0,
            }
        });
        matchers.chain(reclaimers)
    }

    /// What the policy of that name has done.
    pub fn metrics(&self, name: &str) -> Option<&PolicyMetrics> {
        let matchers = self.policies().iter().map(|policy| (&policy.name, &policy.metrics));
        let reclaimers = self.reclaimers().iter().map(|rule| (&rule.name, &rule.metrics));
        matchers.chain(reclaimers).find(|(known, _)| ***known == *name).map(|(_, metrics)| metrics)
    }
}
