//! Checks every decision of any engine in native code, before anything is written.
//!
//! The guard shares no code with an engine. An engine that answers nonsense can make claims wait; it can
//! never take a volume from its claim.
//!
//! # How a decision is checked
//!
//! 1. Its size (G8), and whether anything may be written now (G6; a review writes nothing).
//! 2. Its steps, in order. An action names an object, its UID and a version; the guard looks up what the host
//!    showed the engine under this identity (G5). The step is checked by the rules on that state, and its
//!    effect is then applied to a private copy, because later steps build on earlier ones. A step that
//!    follows regardless is checked on every state that failed writes before it could have left.
//! 3. How an operation goes on: only to a point that the steps lead to.
//!
//! Facts come from the host alone: the request, the exchanges, and the [`View`]. Where a write relies on an
//! object other than the one whose version it carries, the guard looks at that object again in the view.
//!
//! # Where the rules are
//!
//! ARCHITECTURE.md lists the guarantees. G1 to G3 and G10 are in `guard/bind.rs`, G4 in `guard/proof.rs`,
//! G5 in `guard/case.rs`, G7 in `guard/step.rs`, G8 in `guard/size.rs`, G9 in `guard/volume.rs`,
//! `guard/claim.rs` and `guard/operation.rs`, G11 in `guard/reclaim.rs`.
//! `guard/steer.rs` has S1 to S4, for the writes of mode steer. `guard/denial.rs` checks the findings of a
//! review.
//!
//! # What needs a live read
//!
//! A watch may be dead without notice. So a write that cannot be taken back, or that harms a live claim,
//! never rests on a cache alone:
//!
//! - A volume is released, recycled or deleted only after a live read of its claim (G4).
//! - A claim is written Lost, and a claim whose volume an earlier decision reserved gets its volumeName, only
//!   after a live read of that volume. Where the decision itself writes the volume, the API server's answer
//!   to that write is as good.
//!
//! Each read is made for the decision that rests on it. A failed read proves nothing.

mod bind;
mod case;
mod claim;
mod denial;
mod effects;
mod objection;
mod operation;
mod proof;
mod reclaim;
mod size;
mod steer;
mod step;
mod volume;

use std::sync::Arc;

pub use self::steer::{SteerView, check as check_steering};
pub use denial::confirms;
pub use objection::{Breach, Guarantee, Objection, Refusal};
pub use size::{DECISION_BYTES_MAX, FINDINGS_MAX, REGARDLESS_MAX, STEPS_MAX, TALLIES_MAX, TEXT_BYTES_MAX};

use self::effects::Effects;
use self::step::StepCheck;
use crate::{
    Action, Claim, ClaimKey, Class, Decision, Exchange, Fate, Follows, Key, Lookup, MatchVerdict, Regarding,
    Request, Step, Subject, Volume,
};

/// A decision with everything that it is checked by.
pub struct Case<'a> {
    /// What was to be decided.
    pub request: &'a Request,
    /// What the engine asked and was told.
    pub exchanges: &'a [Exchange],
    /// What it decided.
    pub decision: &'a Decision,
    /// The cluster as the guard itself sees it.
    pub view: &'a dyn View,
}

/// What the guard looks up for itself.
pub trait View {
    /// Whether all initial lists are complete (G6).
    fn synced(&self) -> bool;
    /// A volume as the overlay has it.
    fn volume(&self, name: &str) -> Lookup<Arc<Volume>>;
    /// A claim as the overlay has it.
    fn claim(&self, key: &ClaimKey) -> Lookup<Arc<Claim>>;
    /// A class.
    fn class(&self, name: &str) -> Lookup<Arc<Class>>;
    /// A claim that was read live for this decision because the guard asked for it.
    fn claim_proof(&self, key: &ClaimKey) -> Option<&Lookup<Arc<Claim>>>;
    /// A volume that was read live for this decision because the guard asked for it.
    fn volume_proof(&self, name: &str) -> Option<&Lookup<Arc<Volume>>>;
    /// What the policies of a claim say about a free volume (G10); `None` where one has to be asked first.
    /// The error is why the claim waits. Without policies every volume is allowed.
    fn verdict(&self, _claim: &Claim, _volume: &Volume) -> Result<Option<MatchVerdict>, String> {
        Ok(Some(MatchVerdict::Allowed))
    }
    /// Whether every policy that applies to a claim answers: nothing is provisioned for it before, and it
    /// gets no class (G10). `false` where one has to be asked first. The error is why the claim waits.
    fn policies_answer(&self, _claim: &Claim) -> Result<bool, String> {
        Ok(true)
    }
    /// What the reclaimers say about a volume whose claim is gone (G11); `None` where one has to be asked
    /// first. The error is why the volume waits. Without reclaimers its reclaim policy decides.
    fn reclaim(&self, _volume: &Volume) -> Result<Option<Reclaim>, String> {
        Ok(Some(Reclaim::default()))
    }
    /// Whether the operator allows released volumes to be offered again without being scrubbed.
    fn allows_offer_again(&self) -> bool;
}

/// What becomes of a volume whose claim is gone, for the guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaim {
    /// What the reclaimers say.
    pub fate: Fate,
    /// Whether the document of the policy that says so allows it for a volume whose own reclaim policy is
    /// another one.
    pub is_allowed: bool,
}

/// Checks a decision, which is then carried out as a whole or not at all.
///
/// A refusal outranks [`Objection::Prove`]: no live read is spent on a decision that is refused anyway.
pub fn check(case: &Case<'_>) -> Result<(), Objection> {
    size::check(case.decision, || case.request.subject.key())?;
    let whole = StepCheck { case, effects: &Effects::default(), step: None };
    whole.outcome()?;
    if case.decision.steps.is_empty() {
        return Ok(());
    }
    if matches!(case.request.subject, Subject::ReviewClaim { .. } | Subject::ReviewVolume { .. }) {
        return whole.refuse_subject(Breach::OutOfPlace, "a review writes nothing");
    }
    if !case.view.synced() {
        return whole.refuse_subject(Breach::NotSynced, "the initial lists are not complete");
    }
    let mut branches = Branches { case, open: vec![Effects::default()], failed: Vec::new(), unread: None };
    for (index, step) in (0_u32..).zip(&case.decision.steps) {
        branches.step(index, step)?;
    }
    branches.unread.map_or(Ok(()), |object| Err(Objection::Prove(object)))
}

/// Whether a step acts on an object even if steps before it failed.
fn acts_regardless(step: &Step) -> bool {
    step.follows == Follows::Regardless && !matches!(step.action, Action::Emit(_) | Action::EnqueueClaim(_))
}

/// The states that a decision may leave behind, as its writes succeed or fail.
struct Branches<'a> {
    case: &'a Case<'a>,
    /// States in which the next step is carried out: every write before it succeeded, except for those that
    /// follow regardless, whose failure changes nothing else.
    open: Vec<Effects>,
    /// States after a failed write, in which only steps that follow regardless are carried out.
    failed: Vec<Effects>,
    /// First object that has to be read live.
    unread: Option<Key>,
}

impl Branches<'_> {
    fn step(&mut self, index: u32, step: &Step) -> Result<(), Objection> {
        match &step.action {
            Action::Emit(event) => return self.check_event(index, &event.regarding),
            Action::EnqueueClaim(_) => return Ok(()),
            _ => {}
        }
        let before = std::mem::take(&mut self.open);
        self.open = self.check(&before, index, &step.action)?;
        if acts_regardless(step) {
            self.open.extend(before);
            let after = self.check(&self.failed.clone(), index, &step.action)?;
            self.failed.extend(after);
        } else {
            self.failed.extend(before);
        }
        Ok(())
    }

    /// An event is about an object that the engine was shown (G5), so that no other object gets events.
    fn check_event(&self, index: u32, regarding: &Regarding) -> Result<(), Objection> {
        if self.case.has_shown(regarding) {
            return Ok(());
        }
        let check = StepCheck { case: self.case, effects: &Effects::default(), step: Some(index) };
        let (object, version) = match regarding {
            Regarding::Claim(claim) => (Key::Claim(claim.key.clone()), &claim.version),
            Regarding::Volume(volume) => (Key::Volume(volume.name.clone()), &volume.version),
        };
        Err(check.not_read(object, &regarding.uid().0, &version.0))
    }

    /// Checks a step on some states, and returns the states after it.
    fn check(&mut self, states: &[Effects], index: u32, action: &Action) -> Result<Vec<Effects>, Objection> {
        let mut after = Vec::with_capacity(states.len());
        for effects in states {
            let check = StepCheck { case: self.case, effects, step: Some(index) };
            match check.check(action) {
                Ok(()) => {}
                Err(Objection::Prove(object)) => _ = self.unread.get_or_insert(object),
                Err(objection) => return Err(objection),
            }
            after.push(check.apply(action));
        }
        Ok(after)
    }
}
