//! Makes a decision again, as a shadow makes it.

use std::sync::Arc;

use bindery_core::{Claim, Decision, DecisionLimits, Engine, EngineFault, Exchange, Stop, Subject, Volume};
use bindery_policy::{
    Difference, Filtered, FormerClaim, Reclaims, Rejections, RelatedObjects, Rounds, Waits,
};
use bindery_store::{AsOf, Store};

use super::compare::{ComparedDecision, fault};
use super::{Active, Made, ShadowPart, Shadowing};
use crate::decider::{BinderEnvironment, EngineAnswer, recorded};
use crate::operations::OperationMap;
use crate::{Configuration, Journal};

/// What shadows decide by, beside their engine and policies.
pub(crate) struct ShadowDecider<T> {
    pub(crate) store: Arc<Store>,
    pub(crate) configuration: Arc<Configuration<T>>,
    pub(crate) operations: Arc<OperationMap>,
    pub(crate) limits: DecisionLimits,
    /// Where differences are recorded.
    pub(crate) journal: Option<Arc<dyn Journal>>,
}

/// The decision cannot be compared: what it asked is not known of the moment of the decision.
pub(super) struct NotComparable;

/// The end of a run of the shadow's engine.
enum Run {
    /// The shadow does not apply to the object.
    NotConcerned,
    NotComparable,
    /// Policies have to be asked first.
    Judge,
    Decided(Decision, Vec<Exchange>, Option<Rejections>),
    /// A policy gives no answer.
    Waits(Waits),
    Fault(EngineFault),
}

impl<T> ShadowDecider<T> {
    /// How a shadow decides otherwise; `None` if it does not apply to the object, and `Some(Ok(None))` if it
    /// decides the same.
    pub(super) fn decide(
        &self,
        made: &Made,
        shadowing: &Shadowing,
    ) -> Option<Result<Option<Difference>, NotComparable>> {
        let mut rounds = Rounds::default();
        let told = match &made.active {
            Active::Decided(_) => self.decided(made, shadowing, &mut rounds)?,
            Active::Offered(offered) => self.offered(made, offered, shadowing, &mut rounds)?,
        };
        // What a policy that failed and was skipped would have said is not known.
        let failed = fault(shadowing, &rounds).map(ComparedDecision::Fault);
        Some(told.map(|told| self.difference(made, shadowing, &failed.unwrap_or(told))))
    }

    /// What a shadow decides; `None` if it does not apply to the object.
    fn decided(
        &self,
        made: &Made,
        shadowing: &Shadowing,
        rounds: &mut Rounds,
    ) -> Option<Result<ComparedDecision, NotComparable>> {
        let told = loop {
            match self.run(made, shadowing, rounds) {
                Run::NotConcerned => return None,
                Run::NotComparable => return Some(Err(NotComparable)),
                Run::Judge => {
                    // Matchers delay nothing but later shadows.
                    if let Err(waits) = rounds.perform(&shadowing.policies.chain, &shadowing.policies.kept) {
                        break ComparedDecision::waits(&waits, &shadowing.shadow);
                    }
                }
                Run::Decided(decision, exchanges, rejections) => {
                    let told =
                        || ComparedDecision::of(&made.request, &decision, &exchanges, rejections.as_ref());
                    match self.check(made, shadowing, &decision, &exchanges) {
                        Ok(refused) => break refused.unwrap_or_else(told),
                        Err(NotComparable) => return Some(Err(NotComparable)),
                    }
                }
                Run::Waits(waits) => break ComparedDecision::waits(&waits, &shadowing.shadow),
                Run::Fault(fault) => break ComparedDecision::Fault(fault.to_string()),
            }
        };
        Some(Ok(told))
    }

    /// Gives `read` the store as it was.
    pub(super) fn as_of<R>(&self, made: &Made, read: impl FnOnce(AsOf<'_>) -> R) -> Result<R, NotComparable> {
        let environment =
            BinderEnvironment { configuration: &self.configuration, operations: &self.operations };
        let Made { at, exchanges, counted, .. } = made;
        let as_of = AsOf::new(&self.store, &environment, self.limits, *at, exchanges, counted);
        let mut as_of = as_of.ok_or(NotComparable)?;
        if let Subject::SyncClaim(claim) = &made.request.subject {
            as_of = as_of.for_claim(claim.key.clone(), claim.uid.clone());
        }
        Ok(read(as_of))
    }

    /// Runs the engine once, on the store as it was.
    fn run(&self, made: &Made, shadowing: &Shadowing, rounds: &mut Rounds) -> Run {
        let run = self.as_of(made, |as_of| run(made, shadowing, as_of, rounds));
        run.unwrap_or(Run::NotComparable)
    }
}

fn run(made: &Made, shadowing: &Shadowing, mut as_of: AsOf<'_>, rounds: &mut Rounds) -> Run {
    let engine = made.engine_of(&shadowing.shadow);
    let (answer, exchanges, rejections) = match &made.request.subject {
        Subject::SyncClaim(claim) if !concerns_claim(made, shadowing, &as_of, claim) => {
            return Run::NotConcerned;
        }
        Subject::SyncVolume(volume) if !concerns_volume(shadowing, &as_of, volume) => {
            return Run::NotConcerned;
        }
        _ => told(&**engine, made, shadowing, &mut as_of, rounds),
    };
    match answer {
        Err(EngineFault::Stopped(Stop::Judge)) => Run::Judge,
        _ if !as_of.is_known() => Run::NotComparable,
        Err(EngineFault::Stopped(Stop::LiveRead(_) | Stop::NotRecorded)) => Run::NotComparable,
        Err(EngineFault::Stopped(Stop::Waits { policy, why })) => Run::Waits(Waits { policy, why }),
        Err(fault) => Run::Fault(fault),
        Ok(decision) => Run::Decided(decision, exchanges, rejections),
    }
}

type Answer = (Result<Decision, EngineFault>, Vec<Exchange>, Option<Rejections>);

/// Runs the engine with the policies of the shadow.
fn told(
    engine: &dyn Engine,
    made: &Made,
    shadowing: &Shadowing,
    as_of: &mut AsOf<'_>,
    rounds: &mut Rounds,
) -> Answer {
    let (request, chain) = (&made.request, &shadowing.policies.chain);
    let mut rejections = None;
    let EngineAnswer { answer, exchanges, .. } = match &request.subject {
        Subject::SyncClaim(claim) if !chain.is_empty() && gets_a_volume(as_of, claim) => {
            match Filtered::new(as_of, claim, chain, &shadowing.policies.kept, rounds) {
                Some(mut filtered) => {
                    let answer = recorded(engine, request, &mut filtered);
                    rejections = filtered.rejections();
                    answer
                }
                None => recorded(engine, request, as_of),
            }
        }
        Subject::SyncVolume(volume) if !chain.reclaimers().is_empty() => {
            recorded(engine, request, &mut Reclaims::new(as_of, volume, chain, request.now, rounds))
        }
        _ => recorded(engine, request, as_of),
    };
    (answer, exchanges, rejections)
}

/// Whether a shadow applies to a claim, or the policy that it replaces does.
pub(super) fn concerns_claim(made: &Made, shadowing: &Shadowing, as_of: &AsOf<'_>, claim: &Claim) -> bool {
    let ShadowPart::Match(policy) = &shadowing.shadow.part else { return true };
    let replaced = &shadowing.shadow.replaces;
    let policies = [(&shadowing.policies.chain, &policy.name), (&made.policies.chain, replaced)];
    // Where that is not known, the decision shows why.
    RelatedObjects::of(claim, as_of, |related| {
        gets_a_volume(as_of, claim)
            && policies.iter().any(|(chain, name)| chain.applies(name, claim, related).unwrap_or(true))
    })
}

/// Whether a shadow may apply to a volume.
fn concerns_volume(shadowing: &Shadowing, as_of: &AsOf<'_>, volume: &Volume) -> bool {
    let ShadowPart::Reclaim(rule) = &shadowing.shadow.part else { return true };
    let chain = &shadowing.policies.chain;
    let last = || FormerClaim::of_volume(chain, volume, as_of);
    volume.claim_ref.is_some() && chain.may_reclaim(&rule.name, volume, last().as_ref())
}

/// As [`crate::decider::Policies`] has it, at the moment of the decision.
fn gets_a_volume(as_of: &AsOf<'_>, claim: &Claim) -> bool {
    let is_free = |name: &str| as_of.volume_then(name).is_some_and(|volume| volume.claim_ref.is_none());
    !claim.annotations.bind_completed || claim.volume_name.as_deref().is_some_and(is_free)
}
