//! The first calls of a module that was put into effect: whether it fails so often that the generation before
//! comes back.

use std::collections::BTreeSet;
use std::sync::Arc;

use bindery_core::{Cluster, Decision, Engine, EngineFault, Request, Text};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;

use crate::{LatestFault, PolicyFault};

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

/// An engine whose calls are counted.
pub struct ObservedEngine {
    engine: Arc<dyn Engine>,
    /// How often it was called. A call that is made again, because a policy has to be asked first, counts
    /// once.
    pub calls: Counter,
    /// How many of the calls gave no decision.
    pub faults: Counter,
    /// The last of its faults.
    pub last_fault: LatestFault,
    /// Its first calls.
    pub probation: Probation,
}

impl ObservedEngine {
    /// An engine that has not been called.
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        let (calls, faults, last_fault, probation) = Default::default();
        Self { engine, calls, faults, last_fault, probation }
    }

    /// Counts on from what an earlier generation with the same module has done; its first calls count anew.
    pub fn continue_from(&mut self, earlier: &Self) {
        self.calls = earlier.calls.clone();
        self.faults = earlier.faults.clone();
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
        // The call is made again.
        if matches!(decided, Err(EngineFault::Stopped(_))) {
            return (decided, fuel);
        }
        self.calls.inc();
        if let Err(fault) = &decided {
            self.faults.inc();
            self.last_fault.set(fault);
        }
        let is_of_machine = matches!(decided, Err(EngineFault::Unavailable(_)));
        if let Some(namespace) = request.subject.synced_namespace().filter(|_| !is_of_machine) {
            self.probation.record(&namespace, decided.is_err());
        }
        (decided, fuel)
    }

    fn digest(&self) -> &str {
        self.engine.digest()
    }

    fn asks_reclaimers(&self) -> bool {
        self.engine.asks_reclaimers()
    }
}

#[cfg(test)]
mod tests {
    use bindery_core::{Answer, Question, Stop, Subject};
    use bindery_kit::volume;

    use super::*;

    /// An engine that does not decide.
    struct Fails(EngineFault);

    impl Engine for Fails {
        fn decide(&self, _: &Request, _: &mut dyn Cluster) -> Result<Decision, EngineFault> {
            Err(self.0.clone())
        }

        fn digest(&self) -> &str {
            "fails"
        }
    }

    /// A cluster that is asked nothing.
    struct Unasked;

    impl Cluster for Unasked {
        fn ask(&mut self, _: Question) -> Result<Answer, Stop> {
            Err(Stop::Nonsense("a question"))
        }
    }

    #[test]
    fn calls_of_an_engine_are_counted_and_its_last_fault_is_kept() {
        let observed = |fault| ObservedEngine::new(Arc::new(Fails(fault)));
        let subject = Subject::SyncVolume(Arc::new(volume("v")));
        let request = Request { now: 0, subject };
        let again = observed(EngineFault::Stopped(Stop::Judge));
        assert!(again.decide(&request, &mut Unasked).is_err());
        assert_eq!((again.calls.get(), again.faults.get(), again.last_fault.get()), (0, 0, None));
        let mut traps = observed(EngineFault::Trapped("line\nbreak".to_owned()));
        assert!(traps.decide(&request, &mut Unasked).is_err());
        assert_eq!((traps.calls.get(), traps.faults.get()), (1, 1));
        let (_, message) = traps.last_fault.get().unwrap();
        assert_eq!(&*message, "the engine trapped: line break");
        traps.continue_from(&again);
        assert_eq!((traps.calls.get(), traps.faults.get()), (0, 0));
    }

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
