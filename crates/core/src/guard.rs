//! What holds whatever an engine says: every decision is checked here, natively, before any write.
//!
//! None of this shares code with an engine. An engine that answers nonsense can only cause waiting.
//!
//! # How a decision is judged
//!
//! 1. Its size (G8), and whether anything may be written now (G6; a review writes nothing).
//! 2. Step by step, in order. An action names an object, its UID and a version: the record that the host
//!    showed the engine under this identity is the state before the step (G5). The step is held against the
//!    rules, and then carried out on a private copy, because later steps build on earlier ones. A step that
//!    follows regardless is held against every state that failed writes before it could have left.
//! 3. How an operation goes on: only to a point that the steps lead to.
//!
//! Facts come from the host alone: the request, the exchanges, and the [`World`]. Where a write relies on
//! another object than the one whose version it carries, the world is asked whether that still is so.
//!
//! # Where the rules are
//!
//! `guard/bind.rs` has G1 to G3, `guard/proof.rs` G4, `guard/facts.rs` G5, `guard/judge.rs` G7,
//! `guard/size.rs` G8; `guard/volume.rs`, `guard/claim.rs` and `guard/operation.rs` are the table of G9.
//! `guard/denial.rs` is what of a review may deny.
//!
//! # What needs a live read
//!
//! A watch may be dead without notice, so what cannot be taken back, or harms a live claim, never rests on
//! a cache alone:
//!
//! - A volume is released, recycled or deleted only after a live read of its claim (G4).
//! - A claim is written Lost, and a claim whose volume an earlier decision reserved gets its volumeName,
//!   only after a live read of that volume. Where the decision itself writes the volume, the API server's
//!   answer to that write is as good.
//!
//! Each read is made for the decision that rests on it. A read that fails proves nothing.

mod bind;
mod claim;
mod denial;
mod facts;
mod judge;
mod objection;
mod operation;
mod proof;
mod scene;
mod size;
mod volume;

use std::sync::Arc;

pub use denial::holds;
pub use objection::{Breach, Guarantee, Object, Objection, Refusal};
pub use operation::ATTEMPTS_MAX;
pub use size::{DECISION_BYTES_MAX, FINDINGS_MAX, REGARDLESS_MAX, STEPS_MAX, TALLIES_MAX, TEXT_BYTES_MAX};

use self::facts::Facts;
use self::judge::Judge;
use self::scene::Scene;
use crate::{
    Action, Claim, ClaimKey, Class, Decision, Exchange, Follows, Lookup, Regarding, Request, Step, Subject,
    Volume,
};

/// A decision with everything that it is judged by.
pub struct Case<'a> {
    /// What was to be decided.
    pub request: &'a Request,
    /// What the engine asked and was told.
    pub exchanges: &'a [Exchange],
    /// What it decided.
    pub decision: &'a Decision,
    /// The world beside the evidence.
    pub world: &'a dyn World,
}

/// The facts that the guard looks up for itself.
pub trait World {
    /// Whether all initial lists are complete (G6).
    fn synced(&self) -> bool;
    /// A volume as the overlay has it.
    fn volume(&self, name: &str) -> Lookup<Arc<Volume>>;
    /// A claim as the overlay has it.
    fn claim(&self, key: &ClaimKey) -> Lookup<Arc<Claim>>;
    /// A class.
    fn class(&self, name: &str) -> Lookup<Arc<Class>>;
    /// A claim that the guard itself has had read live for this decision; `None` where it has not.
    fn claim_proof(&self, key: &ClaimKey) -> Option<&Lookup<Arc<Claim>>>;
    /// A volume that the guard itself has had read live for this decision; `None` where it has not.
    fn volume_proof(&self, name: &str) -> Option<&Lookup<Arc<Volume>>>;
    /// Whether the operator allows released volumes to be offered again without being scrubbed.
    fn allows_offer_again(&self) -> bool;
}

/// Checks a decision: it may be carried out as a whole, or not at all.
///
/// A refusal outranks [`Objection::Prove`], so that no live read is spent on a decision that is refused
/// anyway.
///
/// # Errors
///
/// It is not carried out: see [`Objection`].
pub fn check(case: &Case<'_>) -> Result<(), Objection> {
    size::check(case.decision, || subject(case.request))?;
    let facts = Facts { case };
    let start = Scene::default();
    let whole = Judge { facts, scene: &start, step: None };
    whole.outcome()?;
    if case.decision.steps.is_empty() {
        return Ok(());
    }
    if matches!(case.request.subject, Subject::ReviewClaim { .. } | Subject::ReviewVolume { .. }) {
        return whole.refuse_subject(Breach::OutOfPlace, "a review writes nothing");
    }
    if !case.world.synced() {
        return whole.refuse_subject(Breach::NotSynced, "the initial lists are not complete");
    }
    let mut course = Course::new(facts);
    for (index, step) in (0_u32..).zip(&case.decision.steps) {
        course.step(index, step)?;
    }
    course.needed.map_or(Ok(()), |object| Err(Objection::Prove(object)))
}

/// The object that a request is about.
fn subject(request: &Request) -> Object {
    match &request.subject {
        Subject::SyncClaim(claim) | Subject::ReviewClaim { new: claim, .. } => {
            Object::Claim(claim.key.clone())
        }
        Subject::SyncVolume(volume) | Subject::ReviewVolume { new: volume, .. } => {
            Object::Volume(volume.name.clone())
        }
        Subject::SyncClaimOperation(progress) => Object::Claim(progress.object.key.clone()),
        Subject::SyncVolumeOperation(progress) => Object::Volume(progress.object.name.clone()),
    }
}

/// Whether an action only says something and changes no object.
fn is_word(action: &Action) -> bool {
    matches!(action, Action::Emit(_) | Action::EnqueueClaim(_))
}

/// The states that a decision may go through, as its writes succeed or fail.
struct Course<'a> {
    facts: Facts<'a>,
    /// In which the next step is carried out: every write before it succeeded, but for those that follow
    /// regardless, whose failure changes nothing else.
    open: Vec<Scene>,
    /// In which a write failed, so that only steps that follow regardless are still carried out.
    ended: Vec<Scene>,
    /// First object that has to be read live.
    needed: Option<Object>,
}

impl<'a> Course<'a> {
    fn new(facts: Facts<'a>) -> Self {
        Self { facts, open: vec![Scene::default()], ended: Vec::new(), needed: None }
    }

    fn step(&mut self, index: u32, step: &Step) -> Result<(), Objection> {
        if is_word(&step.action) {
            return self.word(index, &step.action);
        }
        let before = std::mem::take(&mut self.open);
        self.open = self.judge(&before, index, &step.action)?;
        if acts_regardless(step) {
            self.open.extend(before);
            let after = self.judge(&self.ended.clone(), index, &step.action)?;
            self.ended.extend(after);
        } else {
            self.ended.extend(before);
        }
        Ok(())
    }

    /// Checks what changes no object: an event is about an object that the engine was shown (G5), so that
    /// nobody is told things about objects that are no matter of this decision.
    fn word(&self, index: u32, action: &Action) -> Result<(), Objection> {
        let Action::Emit(event) = action else { return Ok(()) };
        if self.facts.has_shown(&event.regarding) {
            return Ok(());
        }
        let judge = Judge { facts: self.facts, scene: &Scene::default(), step: Some(index) };
        let (object, version) = match &event.regarding {
            Regarding::Claim(claim) => (Object::Claim(claim.key.clone()), &claim.version),
            Regarding::Volume(volume) => (Object::Volume(volume.name.clone()), &volume.version),
        };
        Err(judge.not_read(object, &event.regarding.uid().0, &version.0))
    }

    /// Checks a step on some states and says what it makes of them.
    fn judge(&mut self, scenes: &[Scene], index: u32, action: &Action) -> Result<Vec<Scene>, Objection> {
        let mut after = Vec::with_capacity(scenes.len());
        for scene in scenes {
            let judge = Judge { facts: self.facts, scene, step: Some(index) };
            match judge.check(action) {
                Ok(()) => {}
                Err(Objection::Prove(object)) => _ = self.needed.get_or_insert(object),
                Err(objection) => return Err(objection),
            }
            after.push(judge.apply(action));
        }
        Ok(after)
    }
}

fn acts_regardless(step: &Step) -> bool {
    step.follows == Follows::Regardless && !is_word(&step.action)
}
