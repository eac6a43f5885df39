//! Reviews an object that is about to be written, with the same engine and the same store.
//!
//! A review reads and answers. It takes no key lock, reserves nothing, subscribes to nothing and is not in
//! the journal, so any number of reviews may run beside the decisions, on every replica, leader or not.

use std::sync::Arc;

use bindery_core::{Claim, Decision, Exchange, Finding, Outcome, Request, Subject, Volume, guard};

use super::{Binder, Policies};
use crate::decider::{Proofs, Reads};
use crate::{Port, ReviewError};

/// An object that is about to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reviewed {
    /// A claim.
    Claim {
        /// As it would be.
        new: Arc<Claim>,
        /// As it is; `None` for a creation.
        old: Option<Arc<Claim>>,
    },
    /// A volume.
    Volume {
        /// As it would be.
        new: Arc<Volume>,
        /// As it is; `None` for a creation.
        old: Option<Arc<Volume>>,
    },
}

impl From<Reviewed> for Subject {
    fn from(reviewed: Reviewed) -> Self {
        match reviewed {
            Reviewed::Claim { new, old } => Self::ReviewClaim { new, old },
            Reviewed::Volume { new, old } => Self::ReviewVolume { new, old },
        }
    }
}

impl<P: Port> Binder<P> {
    /// The engine's findings about an object that is about to be written.
    ///
    /// # Errors
    ///
    /// The review failed: the lists are not complete, the engine failed, or an object that the review depends
    /// on cannot be read. That is not a reason to refuse the object.
    pub async fn review(&self, reviewed: Reviewed, reads: Reads) -> Result<Vec<Finding>, ReviewError> {
        if !self.store.synced() {
            return Err(ReviewError::NotSynced);
        }
        let request = Request { now: self.port.now(), subject: reviewed.into() };
        let engine = self.decider.engine();
        let (decision, run) = self.decider.decide(&*engine, &request, reads).await?;
        let told = (reads == Reads::Live).then_some(&*run.exchanges);
        self.findings(&run.policies, &request, decision, told)
    }

    /// The findings of a review. The guard checks those of a live review that may deny a write against the
    /// answers in `told`.
    fn findings(
        &self,
        policies: &Policies,
        request: &Request,
        decision: Decision,
        told: Option<&[Exchange]>,
    ) -> Result<Vec<Finding>, ReviewError> {
        self.decider
            .check(policies, request, told.unwrap_or_default(), &decision, &Proofs::default())
            .map_err(|objection| ReviewError::Refused(objection.to_string()))?;
        let Decision { wait_ms, steps, outcome, tallies: _, findings, requeue_after_ms } = decision;
        match outcome {
            Outcome::Failed(failure) => return Err(ReviewError::Failed(failure)),
            Outcome::Done if wait_ms == 0 && steps.is_empty() && requeue_after_ms.is_none() => {}
            Outcome::Done | Outcome::Continue(_) => return Err(ReviewError::Nonsense),
        }
        let Some(told) = told else { return Ok(findings) };
        match findings.iter().find(|finding| !guard::confirms(finding, &request.subject, told)) {
            None => Ok(findings),
            Some(finding) => {
                let (rule, volume) = (finding.rule.name(), &finding.volume);
                let why = format!("it finds {rule} of volume {volume:?}, and that is not so");
                Err(ReviewError::Refused(why))
            }
        }
    }
}
