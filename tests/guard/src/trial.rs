//! One trial: bytes become a world, a request and a decision, and guard and oracle are held against each
//! other. The body of the property tests and of the fuzz target.

use bindery_core::guard::{self, Breach, Case, Objection};
use bindery_core::{
    Decision, Engine, Exchange, OperationKind, Point, ReclaimPolicy, Recorder, Request, Returned, Subject,
    VolumePhase,
};

use crate::choices::Choices;
use crate::model::Model;
use crate::{decisions, oracle, upstream, worlds};

/// What became of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A decision without steps: allowed.
    Nothing,
    /// Upstream's own decision: allowed.
    Upstream,
    /// Upstream's own decision: refused, and rightly so.
    UpstreamRefused,
    /// A changed or invented decision: allowed, and harmless.
    Harmless,
    /// A changed or invented decision: not carried out.
    Stopped(Option<Breach>),
}

/// Runs the trial that the bytes describe.
///
/// # Errors
///
/// The guard allows harm, or refuses what upstream does: a report with everything to see it by.
pub fn run(bytes: &[u8]) -> Result<Verdict, String> {
    let c = &mut Choices::new(bytes);
    let kind = c.below(4);
    let mut model = worlds::model(c);
    let request = worlds::request(c, &mut model);
    let (mut exchanges, mut decision) =
        upstream::decide(&model, &request).unwrap_or_else(|| (Vec::new(), Decision::done()));
    if kind == 1 {
        return allows(&mut model, &request, &exchanges, &decision);
    }
    if kind == 3 {
        exchanges.extend(decisions::ask_around(&model, &request));
        decision = decisions::invent(c, &model);
    } else {
        for _ in 0..=c.below(2) {
            decisions::mutate(c, &model, &mut decision);
        }
    }
    decisions::ask_more(c, &model, &mut exchanges);
    withstands(&mut model, &request, &exchanges, &decision)
}

/// Runs the world and the request that the bytes describe through an engine whose decisions must pass, by
/// the same measure as upstream's.
///
/// # Errors
///
/// The guard refuses the engine's decision, or it harms: a report with everything to see it by.
pub fn run_engine(bytes: &[u8], engine: &dyn Engine) -> Result<Verdict, String> {
    let c = &mut Choices::new(bytes);
    let mut model = worlds::model(c);
    let request = worlds::request(c, &mut model);
    let mut cluster = model.clone();
    let mut recorder = Recorder::new(&mut cluster);
    match engine.decide(&request, &mut recorder) {
        Ok(decision) => allows(&mut model, &request, &recorder.into_exchanges(), &decision),
        // No host asks that.
        Err(_) if !fits(&request) => Ok(Verdict::Nothing),
        Err(fault) => Err(format!("the engine does not decide: {fault}\n--- request\n{request:?}")),
    }
}

/// Whether the operation of the request can be at its point, with that outcome: random progress need not.
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
    // Only what is created can be there already.
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

/// The guard allows what upstream does, unless the live read or the world as it is now speaks against it.
fn allows(
    model: &mut Model,
    request: &Request,
    exchanges: &[Exchange],
    decision: &Decision,
) -> Result<Verdict, String> {
    let Err(objection) = check(model, request, exchanges, decision) else {
        return match oracle::judge(model, request, decision) {
            Ok(()) if decision.steps.is_empty() => Ok(Verdict::Nothing),
            Ok(()) => Ok(Verdict::Upstream),
            Err(harm) => {
                Err(report("upstream's own decision harms", &harm, model, request, exchanges, decision))
            }
        };
    };
    let excused = match &objection {
        Objection::Prove(_) => false,
        // The engine was shown another world than the guard, or than a live read shows, which upstream does
        // not make.
        Objection::Stale { .. } => model.seen != model.now || model.seen != model.truth,
        Objection::Contradicted { .. } => model.now != model.truth,
        Objection::Unproven { .. } => model.live_fails,
        Objection::Refused(refusal) => match refusal.breach {
            // A live read, which upstream does not make, shows otherwise.
            Breach::ClaimLives => model.seen != model.truth,
            Breach::Unreadable => model.unreadable.is_some(),
            Breach::NotSynced => !model.synced,
            // The live read shows that the claim, which had another volume, is gone: the data would be
            // offered.
            Breach::OfferedAgain => model.seen != model.truth,
            // An operation reads its volume again, and finds another than the one that it was started for.
            _ if matches!(request.subject, Subject::SyncVolumeOperation(_)) => model.seen != model.truth,
            // Of all else the guard knows what the engine knew, unless the overlay has moved.
            _ => model.seen != model.now,
        },
    };
    if excused || !fits(request) || !plausible(model, request) {
        return Ok(Verdict::UpstreamRefused);
    }
    let why = format!("{objection:?}");
    Err(report("the guard refuses what upstream does", &why, model, request, exchanges, decision))
}

/// Whether the operation of the request could have been started: random progress need not be reachable.
fn plausible(model: &Model, request: &Request) -> bool {
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
            volume.policy == policy
                && matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed)
                && volume.annotations.migrated_to.as_ref().is_none_or(|driver| driver.is_empty())
                // Nothing brings a claim back that was gone when the operation started.
                && volume.claim_ref.as_ref().and_then(|claim_ref| claim_ref.uid.as_ref()).is_some_and(|uid| {
                    [&model.seen, &model.truth].iter().all(|o| o.claims.values().all(|c| c.uid != *uid))
                })
        }
        Subject::SyncClaim(_)
        | Subject::SyncVolume(_)
        | Subject::ReviewClaim { .. }
        | Subject::ReviewVolume { .. } => true,
    }
}

/// What the guard allows does no harm.
fn withstands(
    model: &mut Model,
    request: &Request,
    exchanges: &[Exchange],
    decision: &Decision,
) -> Result<Verdict, String> {
    match check(model, request, exchanges, decision) {
        Ok(()) if decision.steps.is_empty() => Ok(Verdict::Nothing),
        Err(Objection::Refused(refusal)) => Ok(Verdict::Stopped(Some(refusal.breach))),
        Err(
            Objection::Prove(_)
            | Objection::Stale { .. }
            | Objection::Contradicted { .. }
            | Objection::Unproven { .. },
        ) => Ok(Verdict::Stopped(None)),
        Ok(()) => match oracle::judge(model, request, decision) {
            Ok(()) => Ok(Verdict::Harmless),
            Err(harm) => Err(report("the guard allows harm", &harm, model, request, exchanges, decision)),
        },
    }
}

/// Asks the guard, and reads live what it asks for.
fn check(
    model: &mut Model,
    request: &Request,
    exchanges: &[Exchange],
    decision: &Decision,
) -> Result<(), Objection> {
    loop {
        match guard::check(&Case { request, exchanges, decision, world: model }) {
            Err(Objection::Prove(object)) if !model.has_proof(&object) => model.prove(object),
            verdict => return verdict,
        }
    }
}

fn report(
    what: &str,
    why: &str,
    model: &Model,
    request: &Request,
    exchanges: &[Exchange],
    decision: &Decision,
) -> String {
    format!(
        "{what}: {why}\n--- decision\n{decision:#?}\n--- request\n{request:?}\n--- exchanges\n{exchanges:?}\n--- world\n{model:?}"
    )
}
