//! Has the guard check what a shadow decides, on the objects of the decision.

use std::cell::RefCell;
use std::sync::Arc;

use bindery_core::guard::{self, Case, Objection};
use bindery_core::{
    Answer, Claim, ClaimKey, ClaimRef, Class, Cluster as _, Counted, Decision, Exchange, Lookup, Progress,
    Question, RelatedLookup, Request, Source, Spread, Subject, Volume,
};
use bindery_policy::NamespaceLabels;
use bindery_store::AsOf;

use super::compare::ComparedDecision;
use super::decide::{NotComparable, ShadowDecider};
use super::{Active, Made, ShadowPart, Shadowing};
use crate::decider::{GuardView, Objects, PROOFS_MAX, Proofs};

/// The objects as they were when a decision was made.
struct Then<'a> {
    request: &'a Request,
    as_of: RefCell<AsOf<'a>>,
}

impl Then<'_> {
    fn ask(&self, question: Question) -> Option<Answer> {
        self.as_of.borrow_mut().ask(question).ok()
    }

    /// The volume that was decided; of an operation, as its own writes left it.
    fn own_volume(&self) -> Option<Arc<Volume>> {
        match &self.request.subject {
            Subject::SyncVolume(volume) => Some(Arc::clone(volume)),
            Subject::SyncVolumeOperation(Progress { object, fresh, .. }) => {
                Some(Arc::new(fresh.as_ref().unwrap_or(object).clone()))
            }
            Subject::SyncClaimOperation(Progress { fresh, .. }) => fresh.clone().map(Arc::new),
            Subject::SyncClaim(_) | Subject::ReviewClaim { .. } | Subject::ReviewVolume { .. } => None,
        }
    }

    /// The claim that was decided.
    fn own_claim(&self) -> Option<Arc<Claim>> {
        match &self.request.subject {
            Subject::SyncClaim(claim) => Some(Arc::clone(claim)),
            Subject::SyncClaimOperation(Progress { object, .. }) => Some(Arc::new(object.clone())),
            _ => None,
        }
    }
}

impl Objects for Then<'_> {
    fn synced(&self) -> bool {
        true
    }

    fn volume(&self, name: &str) -> Lookup<Arc<Volume>> {
        if let Some(volume) = self.own_volume().filter(|volume| *volume.name == *name) {
            return Lookup::Found(volume);
        }
        match self.ask(Question::Volume(Source::Overlay, name.into())) {
            Some(Answer::Volume(found)) => found,
            _ => Lookup::Failed("it is not known what it was".into()),
        }
    }

    fn claim(&self, key: &ClaimKey) -> Lookup<Arc<Claim>> {
        if let Some(claim) = self.own_claim().filter(|claim| claim.key == *key) {
            return Lookup::Found(claim);
        }
        match self.ask(Question::Claim(Source::Overlay, key.clone())) {
            Some(Answer::Claim(found)) => found,
            _ => Lookup::Failed("it is not known what it was".into()),
        }
    }
}

impl RelatedLookup for Then<'_> {
    fn class_of(&self, name: &str) -> Lookup<Arc<Class>> {
        self.as_of.borrow().class_of(name)
    }

    fn namespace_labels(&self, name: &str) -> NamespaceLabels {
        self.as_of.borrow().namespace_labels(name)
    }

    fn siblings(&self, claim: &Claim, spread: &Spread) -> Counted {
        self.as_of.borrow().siblings(claim, spread)
    }

    fn last_claim(&self, claim_ref: &ClaimRef) -> Option<Arc<Claim>> {
        self.as_of.borrow().last_claim(claim_ref)
    }
}

impl<T> ShadowDecider<T> {
    /// What becomes of a decision that the guard does not pass; `None` if it passes. Nothing is read live for
    /// a shadow: where the guard would, it is shown the objects of the decision.
    pub(super) fn check(
        &self,
        made: &Made,
        shadowing: &Shadowing,
        decision: &Decision,
        exchanges: &[Exchange],
    ) -> Result<Option<ComparedDecision>, NotComparable> {
        // The guard has passed it, by the same policies.
        let is_active = matches!(&made.active, Active::Decided(active) if active == decision);
        if is_active && matches!(shadowing.shadow.part, ShadowPart::Engine(_)) {
            return Ok(None);
        }
        let (mut proofs, policies) = (Proofs::default(), &shadowing.policies);
        loop {
            match self.objection(made, shadowing, decision, exchanges, &mut proofs)? {
                None => return Ok(None),
                Some(Objection::Refused(refusal)) => {
                    return Ok(Some(ComparedDecision::Refused(refusal.to_string())));
                }
                Some(Objection::Judge) => {
                    // Matchers delay nothing but later shadows.
                    if let Err(waits) = proofs.rounds.get_mut().perform(&policies.chain, &policies.kept) {
                        return Ok(Some(ComparedDecision::waits(&waits, &shadowing.shadow)));
                    }
                }
                // It would be decided again for ever, because a live read shows what the cache does.
                Some(Objection::Stale { object, what }) if !proofs.is_empty() => {
                    return Ok(Some(ComparedDecision::Refused(format!("{object}: {what}"))));
                }
                Some(
                    Objection::Prove(_)
                    | Objection::Stale { .. }
                    | Objection::Contradicted { .. }
                    | Objection::Unproven { .. },
                ) => return Err(NotComparable),
            }
        }
    }

    fn objection(
        &self,
        made: &Made,
        shadowing: &Shadowing,
        decision: &Decision,
        exchanges: &[Exchange],
        proofs: &mut Proofs,
    ) -> Result<Option<Objection>, NotComparable> {
        let (request, policies) = (&made.request, &shadowing.policies);
        let offer_again = self.configuration.offer_again;
        self.as_of(made, |as_of| {
            let objects = &Then { request, as_of: RefCell::new(as_of) };
            let mut checked = Ok(());
            for _ in 0..=PROOFS_MAX {
                let view = GuardView { objects, policies, proofs, offer_again, now: request.now };
                checked = guard::check(&Case { request, exchanges, decision, view: &view });
                let Err(Objection::Prove(object)) = &checked else { break };
                proofs.assume(object.clone(), objects);
            }
            if objects.as_of.borrow().is_known() { Ok(checked.err()) } else { Err(NotComparable) }
        })?
    }
}
