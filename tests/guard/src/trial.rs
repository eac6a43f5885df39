//! One trial: bytes become a world, a request and a decision, on which guard and oracle are compared. The
//! body of the property test and of the fuzz target.

use bindery_core::guard::{self, Breach, Case, Objection};
use bindery_core::{
    Decision, Engine as _, EngineFault, Exchange, OperationKind, Point, ReclaimPolicy, Recorder, Request,
    Returned, Subject, Uid, VolumePhase,
};
use bindery_engine::DefaultEngine;
use bindery_kit::Choices;

use crate::model::Model;
use crate::{decisions, oracle, worlds};

/// How a trial ended without error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A decision without steps: allowed.
    NoSteps,
    /// The default engine's decision: allowed, and harmless.
    EngineAllowed,
    /// The default engine's decision: refused, because the world has changed or the request is impossible.
    EngineRefused,
    /// A changed or invented decision: allowed, and harmless.
    Harmless,
    /// A changed or invented decision: refused.
    Stopped(Option<Breach>),
}

/// A world, a request, questions with answers, and a decision.
struct Trial {
    model: Model,
    request: Request,
    exchanges: Vec<Exchange>,
    decision: Decision,
}

/// Runs the trial that the bytes describe.
///
/// # Errors
///
/// The guard allows a decision that harms, or refuses the default engine's: a report of the whole trial.
pub fn run(bytes: &[u8]) -> Result<Ending, String> {
    let c = &mut Choices::new(bytes);
    let kind = c.below(4);
    let mut model = worlds::model(c);
    let request = worlds::request(c, &mut model);
    let (exchanges, decision) = match decide(&model, &request) {
        Ok(decided) => decided,
        // A host never sends this request.
        Err(_) if !fits(&request) => (Vec::new(), Decision::done()),
        Err(fault) => return Err(format!("the engine does not decide: {fault}\n--- request\n{request:?}")),
    };
    let mut trial = Trial { model, request, exchanges, decision };
    if kind == 1 {
        return trial.check_engine();
    }
    if kind == 3 {
        trial.exchanges.extend(decisions::ask_around(&trial.model, &trial.request));
        trial.decision = decisions::invent(c, &trial.model);
    } else {
        for _ in 0..=c.below(2) {
            decisions::mutate(c, &trial.model, &mut trial.decision);
        }
    }
    decisions::ask_more(c, &trial.model, &mut trial.exchanges);
    trial.check_any()
}

/// The default engine's questions and decision.
fn decide(model: &Model, request: &Request) -> Result<(Vec<Exchange>, Decision), EngineFault> {
    let mut cluster = model.clone();
    let mut recorder = Recorder::new(&mut cluster);
    let decision = DefaultEngine.decide(request, &mut recorder)?;
    Ok((recorder.into_exchanges(), decision))
}

impl Trial {
    /// The guard allows the default engine's decision, unless a live read or a later state of the world
    /// explains the objection.
    fn check_engine(mut self) -> Result<Ending, String> {
        let Err(objection) = self.check() else {
            return match oracle::judge(&self.model, &self.request, &self.decision) {
                Ok(()) if self.decision.steps.is_empty() => Ok(Ending::NoSteps),
                Ok(()) => Ok(Ending::EngineAllowed),
                Err(harm) => Err(self.report("the engine's decision harms", &harm)),
            };
        };
        if self.excuses(&objection) || !fits(&self.request) || !self.is_plausible() {
            return Ok(Ending::EngineRefused);
        }
        Err(self.report("the guard refuses what the engine decides", &format!("{objection:?}")))
    }

    /// A decision that the guard allows does no harm.
    fn check_any(mut self) -> Result<Ending, String> {
        match self.check() {
            Ok(()) if self.decision.steps.is_empty() => Ok(Ending::NoSteps),
            Err(Objection::Refused(refusal)) => Ok(Ending::Stopped(Some(refusal.breach))),
            Err(_) => Ok(Ending::Stopped(None)),
            Ok(()) => match oracle::judge(&self.model, &self.request, &self.decision) {
                Ok(()) => Ok(Ending::Harmless),
                Err(harm) => Err(self.report("the guard allows harm", &harm)),
            },
        }
    }

    /// Asks the guard, and makes the live reads that it asks for.
    fn check(&mut self) -> Result<(), Objection> {
        loop {
            let Self { model, request, exchanges, decision } = &*self;
            match guard::check(&Case { request, exchanges, decision, view: model }) {
                Err(Objection::Prove(object)) if !self.model.has_proof(&object) => self.model.prove(object),
                result => return result,
            }
        }
    }

    /// Whether the world explains the guard's objection to the engine's decision.
    fn excuses(&self, objection: &Objection) -> bool {
        let Self { model, request, .. } = self;
        match objection {
            Objection::Prove(_) | Objection::Judge => false,
            // The engine saw another world than the guard or the guard's live read.
            Objection::Stale { .. } => model.seen != model.now || model.seen != model.truth,
            Objection::Contradicted { .. } => model.now != model.truth,
            Objection::Unproven { .. } => model.live_fails,
            Objection::Refused(refusal) => match refusal.breach {
                // A live read shows that the claim lives, or that it is gone and the data would be offered.
                Breach::ClaimLives | Breach::OfferedAgain => model.seen != model.truth,
                Breach::Unreadable => model.unreadable.is_some(),
                Breach::NotSynced => !model.synced,
                // An operation reads its volume again, and the volume is not the one that it began with.
                _ if matches!(request.subject, Subject::SyncVolumeOperation(_)) => model.seen != model.truth,
                // Otherwise the guard has the engine's facts, unless the overlay has changed.
                _ => model.seen != model.now,
            },
        }
    }

    /// Whether the operation of the request could have been started: random progress need not be reachable.
    fn is_plausible(&self) -> bool {
        let Self { model, request, .. } = self;
        match &request.subject {
            Subject::SyncClaimOperation(progress) => {
                let claim = &progress.object;
                claim.volume_name.is_none()
                    && !claim.annotations.bind_completed
                    && (progress.operation.kind == OperationKind::ProvisionExternal
                        || progress.operation.plugin == worlds::PLUGIN.into())
            }
            Subject::SyncVolumeOperation(progress) => {
                let volume = &progress.object;
                let policy = match progress.operation.kind {
                    OperationKind::Recycle => ReclaimPolicy::Recycle,
                    _ => ReclaimPolicy::Delete,
                };
                let lives = |uid: &Uid| {
                    [&model.seen, &model.truth].iter().any(|o| o.claims.values().any(|c| c.uid == *uid))
                };
                volume.policy == policy
                    && matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed)
                    && volume.annotations.migrated_to.as_ref().is_none_or(|driver| driver.is_empty())
                    // A claim that was gone when the operation began does not come back.
                    && volume.claim_ref.as_ref().and_then(|r| r.uid.as_ref()).is_some_and(|uid| !lives(uid))
            }
            Subject::SyncClaim(_)
            | Subject::SyncVolume(_)
            | Subject::ReviewClaim { .. }
            | Subject::ReviewVolume { .. } => true,
        }
    }

    fn report(&self, what: &str, why: &str) -> String {
        let Self { model, request, exchanges, decision } = self;
        format!(
            "{what}: {why}\n--- decision\n{decision:#?}\n--- request\n{request:?}\n--- exchanges\n\
             {exchanges:?}\n--- world\n{model:?}"
        )
    }
}

/// Whether the operation of the request can be at its point, with that outcome: random progress need not be.
fn fits(request: &Request) -> bool {
    use OperationKind::{Delete, Provision, ProvisionExternal, Recycle};
    let (kind, point, returned, has_read) = match &request.subject {
        Subject::SyncClaimOperation(p) => (p.operation.kind, p.point, &p.returned, p.fresh.is_some()),
        Subject::SyncVolumeOperation(p) => (p.operation.kind, p.point, &p.returned, p.fresh.is_some()),
        Subject::SyncClaim(_)
        | Subject::SyncVolume(_)
        | Subject::ReviewClaim { .. }
        | Subject::ReviewVolume { .. } => return true,
    };
    // Only a created object can exist already.
    let was_created = matches!(point, Point::Created { .. });
    if *returned == Returned::AlreadyExists && !was_created {
        return false;
    }
    match (kind, point) {
        (_, Point::Start) | (Provision | ProvisionExternal, Point::Annotated) | (Delete, Point::Deleted) => {
            true
        }
        (Provision, Point::Provisioned | Point::Created { .. } | Point::CleanedUp { .. }) => true,
        (Delete, Point::FinalizerRemoved) | (Recycle, Point::Recycled) => has_read,
        _ => false,
    }
}
