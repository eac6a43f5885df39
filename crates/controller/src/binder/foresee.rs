//! Foresees the decision about a claim: one run of the decider, and no step is carried out.

use std::sync::Arc;

use bindery_core::guard::Objection;
use bindery_core::{Claim, Decision, Key, Outcome, Request, Subject, Text, Volume};
use bindery_policy::{Rounds, Said, Waits};
use bindery_store::LiveReads;

use super::Binder;
use crate::Port;
use crate::decider::{Proofs, Reads};
use crate::observe::{BinderObserver, Foreseen, Observation};

impl<P: Port> Binder<P> {
    /// Compares the binds of other programs from now on; see [`Observation`].
    pub fn observe(self: &Arc<Self>) {
        self.intake.set_observer(Box::new(BinderObserver(Arc::downgrade(self))));
    }

    /// What the comparison has shown so far.
    pub fn observation(&self) -> &Observation {
        &self.observation
    }

    /// The name of the first policy that applies to a claim. The error says why that is not known.
    pub(crate) fn policy_of(&self, claim: &Claim) -> Result<Option<Text>, Waits> {
        let policies = self.decider.policies.get();
        Ok(policies.applying(&self.store, claim)?.map(|policy| policy.name.clone()))
    }

    /// What the policies of a claim say about a volume that it could newly get. For commands that explain: it
    /// asks matchers on this thread, which takes milliseconds for one that contains an interpreter.
    ///
    /// # Errors
    ///
    /// A policy gives no answer: which, and why.
    pub fn said(&self, claim: &Claim, volume: &Volume) -> Result<Vec<Said>, String> {
        self.decider.policies.get().said(&self.store, claim, volume).map_err(|stop| stop.to_string())
    }

    /// The volume that a claim would get at this moment; `None` if it would wait, or a live read would
    /// decide.
    pub fn would_get(&self, claim: &Arc<Claim>) -> Option<Text> {
        match self.foresee(claim) {
            Foreseen::Binds(volume) => Some(volume),
            Foreseen::Waits(_) | Foreseen::Unknown(_) => None,
        }
    }

    /// The decision about a claim at this moment. It makes no live read, because the cluster would change
    /// meanwhile.
    pub(crate) fn foresee(&self, claim: &Arc<Claim>) -> Foreseen {
        let request = Request { now: self.port.now(), subject: Subject::SyncClaim(claim.clone()) };
        let (engine, policies) = (self.decider.engine(), self.decider.policies.get());
        let (live, mut rounds) = (LiveReads::default(), Rounds::default());
        let (answer, run) =
            self.decider.run(&*engine, &policies, &request, Reads::Cached, &live, &mut rounds);
        let decision = match answer {
            Ok(decision) => decision,
            Err(fault) => return Foreseen::Unknown(fault.to_string()),
        };
        match self.decider.check(&policies, &request, &run.exchanges, &decision, &Proofs::default()) {
            // The claim has been bound meanwhile; the decision is about its earlier state. A live read of a
            // volume would only confirm the cache at this moment.
            Ok(()) | Err(Objection::Stale { .. } | Objection::Prove(Key::Volume(_))) => foreseen(&decision),
            Err(
                Objection::Prove(Key::Claim(_)) | Objection::Unproven { .. } | Objection::Contradicted { .. },
            ) => Foreseen::Unknown("it depends on a live read".to_owned()),
            Err(Objection::Judge) => Foreseen::Unknown("a policy has not been asked yet".to_owned()),
            Err(Objection::Refused(refusal)) => Foreseen::Waits(format!("the guard refuses it: {refusal}")),
        }
    }
}

fn foreseen(decision: &Decision) -> Foreseen {
    match (decision.chosen(), &decision.outcome) {
        (Some(name), _) => Foreseen::Binds(name.clone()),
        (None, Outcome::Failed(failure)) => Foreseen::Waits(failure.to_string()),
        (None, Outcome::Done | Outcome::Continue(_)) => Foreseen::Waits("the claim is not bound".to_owned()),
    }
}
