//! The first calls of a module that was put into effect: whether it fails so often that the generation before
//! comes back.

use std::collections::BTreeSet;
use std::sync::Arc;

use bindery_core::{Cluster, Decision, Engine, EngineFault, Request, Text};
use parking_lot::Mutex;

use crate::PolicyFault;

/// How many calls count.
const CALLS: u32 = 100;
/// So many of them must fail.
const FAULTS_MAX: u32 = 5;
/// In so many namespaces. A tenant who makes a module fail in a namespace of their own only makes their own
/// claims wait, and takes back no policy.
const NAMESPACES_MAX: usize = 3;

/// The first calls of a module. Clones count together. Reviews do not count: anyone may ask for them.
#[derive(Clone, Debug, Default)]
pub struct Probation(Arc<Mutex<Calls>>);

#[derive(Debug, Default)]
struct Calls {
    all: u32,
    failed: u32,
    /// The namespaces of those that failed.
    namespaces: BTreeSet<Text>,
}

/// What the first calls say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbationOutcome {
    /// There were too few calls.
    Undecided,
    /// The module stays.
    Passed,
    /// The generation before is to come back.
    Failed,
}

impl Probation {
    /// Counts a call for an object of this namespace.
    pub fn record(&self, namespace: &Text, has_failed: bool) {
        let mut calls = self.0.lock();
        if calls.outcome() != ProbationOutcome::Undecided {
            return;
        }
        calls.all += 1;
        if has_failed {
            calls.failed += 1;
            calls.namespaces.insert(namespace.clone());
        }
    }

    /// What the calls until now say.
    pub fn outcome(&self) -> ProbationOutcome {
        self.0.lock().outcome()
    }
}

impl Calls {
    fn outcome(&self) -> ProbationOutcome {
        if self.failed >= FAULTS_MAX && self.namespaces.len() >= NAMESPACES_MAX {
            ProbationOutcome::Failed
        } else if self.all >= CALLS {
            ProbationOutcome::Passed
        } else {
            ProbationOutcome::Undecided
        }
    }
}

impl PolicyFault {
    /// Whether the module failed, and not the machine.
    pub(crate) fn is_of_module(&self) -> bool {
        !matches!(self, Self::Unavailable(_))
    }
}

/// An engine whose first calls are counted.
pub struct ObservedEngine {
    engine: Arc<dyn Engine>,
    /// Its first calls.
    pub probation: Probation,
}

impl ObservedEngine {
    /// An engine that has not been called.
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self { engine, probation: Probation::default() }
    }
}

impl Engine for ObservedEngine {
    fn decide(&self, request: &Request, cluster: &mut dyn Cluster) -> Result<Decision, EngineFault> {
        self.decide_with_fuel(request, cluster).0
    }

    fn decide_with_fuel(
        &self,
        request: &Request,
        cluster: &mut dyn Cluster,
    ) -> (Result<Decision, EngineFault>, Option<u64>) {
        let (decided, fuel) = self.engine.decide_with_fuel(request, cluster);
        let has_failed = match &decided {
            Ok(_) => Some(false),
            Err(EngineFault::Trapped(_) | EngineFault::Exhausted(_) | EngineFault::BadAnswer(_)) => {
                Some(true)
            }
            // The call is made again, or the machine failed.
            Err(EngineFault::Stopped(_) | EngineFault::Unavailable(_)) => None,
        };
        if let Some((has_failed, namespace)) = has_failed.zip(request.subject.synced_namespace()) {
            self.probation.record(&namespace, has_failed);
        }
        (decided, fuel)
    }

    fn digest(&self) -> &str {
        self.engine.digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(calls: &[(&str, bool)]) -> ProbationOutcome {
        let probation = Probation::default();
        for (namespace, has_failed) in calls {
            probation.record(&(*namespace).into(), *has_failed);
        }
        probation.outcome()
    }

    #[test]
    fn a_module_fails_by_five_faults_in_three_namespaces() {
        let faults = [("a", true), ("b", true), ("c", true), ("c", true), ("c", true)];
        assert_eq!(after(&faults), ProbationOutcome::Failed);
        assert_eq!(after(&faults[..4]), ProbationOutcome::Undecided);
        let answered = [("a", false); 95];
        assert_eq!(after(&[&answered[..], &faults].concat()), ProbationOutcome::Failed);
        assert_eq!(after(&[&answered[..], &[("a", false)], &faults].concat()), ProbationOutcome::Passed);
    }

    #[test]
    fn a_tenant_with_two_namespaces_takes_back_no_module() {
        let faults = [("a", true), ("b", true)].repeat(50);
        assert_eq!(after(&faults[..99]), ProbationOutcome::Undecided);
        assert_eq!(after(&faults), ProbationOutcome::Passed);
    }
}
