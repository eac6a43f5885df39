//! Among which volumes the scheduler may choose, by the policies of a shadow.

use std::collections::BTreeSet;
use std::sync::Arc;

use bindery_core::{Claim, Selector, Stop, Text};
use bindery_policy::{Rounds, Waits, allowed};

use super::compare::ComparedDecision;
use super::decide::{NotComparable, ShadowDecider, concerns_claim};
use super::{Made, Shadowing};
use crate::labels::{ClaimCandidates, labels};

/// The volumes that have got the label of a claim.
pub(crate) struct Offered {
    /// The claims of the pod, in order.
    pub(crate) claims: Vec<Arc<Claim>>,
    /// The place of the claim among them.
    pub(crate) place: usize,
    /// The names of the volumes.
    pub(crate) volumes: BTreeSet<Text>,
}

impl<T> ShadowDecider<T> {
    /// Which volumes get the label of a claim; `None` if the shadow applies to no claim of the pod.
    pub(super) fn offered(
        &self,
        made: &Made,
        offered: &Offered,
        shadowing: &Shadowing,
        rounds: &mut Rounds,
    ) -> Option<Result<ComparedDecision, NotComparable>> {
        let is_concerned = |claim: &Arc<Claim>| {
            self.as_of(made, |as_of| concerns_claim(made, shadowing, &as_of, claim)).unwrap_or(true)
        };
        if !offered.claims.iter().any(is_concerned) {
            return None;
        }
        let mut candidates = Vec::new();
        for claim in &offered.claims {
            match self.candidates(made, shadowing, claim, rounds) {
                Ok(Ok(of_claim)) => candidates.push(of_claim),
                Ok(Err(told)) => return Some(Ok(told)),
                Err(NotComparable) => return Some(Err(NotComparable)),
            }
        }
        Some(Ok(ComparedDecision::Offers(labels(&candidates).swap_remove(offered.place))))
    }

    /// The volumes that a claim may get. The inner error says why the policies give no answer.
    fn candidates(
        &self,
        made: &Made,
        shadowing: &Shadowing,
        claim: &Claim,
        rounds: &mut Rounds,
    ) -> Result<Result<ClaimCandidates, ComparedDecision>, NotComparable> {
        if let Some(Selector::Invalid(_)) = claim.selector {
            return Ok(Ok(ClaimCandidates::of(claim, &[])));
        }
        let (chain, kept) = (&shadowing.policies.chain, &shadowing.policies.kept);
        loop {
            let (answer, is_known) = self.as_of(made, |mut as_of| {
                let answer = allowed(&mut as_of, claim, chain, kept, rounds);
                (answer, as_of.is_known())
            })?;
            let waits = match answer {
                Err(Stop::Judge) => match rounds.perform(chain, kept) {
                    Ok(()) => continue,
                    Err(waits) => waits,
                },
                _ if !is_known => return Err(NotComparable),
                Ok(allowed) => return Ok(Ok(ClaimCandidates::of(claim, &allowed.volumes))),
                Err(Stop::Waits { policy, why }) => Waits { policy, why },
                Err(stop) => return Ok(Err(ComparedDecision::Fault(stop.to_string()))),
            };
            return Ok(Err(ComparedDecision::waits(&waits, &shadowing.shadow)));
        }
    }
}
