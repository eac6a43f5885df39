//! What is wrong with an object that somebody is about to write: the same engine, on the same store.
//!
//! A review reads and answers. It takes no slot, reserves nothing, subscribes to nothing and is not in the
//! journal, so any number of them may run beside the decisions, on every replica, whoever leads.

use std::sync::Arc;

use bindery_core::guard;
use bindery_core::{
    Answer, Claim, Cluster, Decision, Engine, EngineFault, Exchange, Finding, Outcome, Question, Recorder,
    Request, Source, Stop, Subject, Volume,
};
use bindery_store::{LiveReads, Session};

use super::Binder;
use super::world::{Proofs, Surroundings};
use crate::{Port, ReviewError};

/// Most live reads of one review; the default engine asks for three objects at most.
const LIVE_READS_MAX: usize = 8;

/// An object that is about to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reviewed {
    /// A claim.
    Claim {
        /// As it would be.
        new: Arc<Claim>,
        /// As it is; `None` where it is to be created.
        old: Option<Arc<Claim>>,
    },
    /// A volume.
    Volume {
        /// As it would be.
        new: Arc<Volume>,
        /// As it is; `None` where it is to be created.
        old: Option<Arc<Volume>>,
    },
}

/// What a review looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sight {
    /// The watched store, with own writes laid over it: costs no request, and may be a moment old.
    Watched,
    /// Claims and volumes as the API server has them now, each read for this review; classes as they are
    /// watched.
    Live,
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
    /// What the engine finds wrong with an object that is about to be written.
    ///
    /// # Errors
    ///
    /// Nobody can say: the lists are not complete, the engine failed, or an object that the review depends on
    /// cannot be read. That is no reason to refuse the object.
    pub async fn review(&self, reviewed: Reviewed, sight: Sight) -> Result<Vec<Finding>, ReviewError> {
        if !self.store.synced() {
            return Err(ReviewError::NotSynced);
        }
        let request = Request { now: self.port.now(), subject: reviewed.into() };
        let engine = self.engine();
        let mut reads = Vec::new();
        for _ in 0..=LIVE_READS_MAX {
            let question = match self.look(&*engine, &request, sight, &reads) {
                Ok((decision, told)) => return self.findings(&request, decision, &reads, told.as_deref()),
                Err(EngineFault::Stopped(Stop::LiveRead(question))) => question,
                Err(fault) => return Err(fault.into()),
            };
            let answer = self.read_live(&question).await?;
            reads.push(Exchange { question, answer });
        }
        Err(ReviewError::TooManyReads(LIVE_READS_MAX))
    }

    /// Runs the engine once, on the store as it is now and what was read live so far. Of a live look the
    /// guard must know what the engine asked and was told.
    fn look(
        &self,
        engine: &dyn Engine,
        request: &Request,
        sight: Sight,
        reads: &[Exchange],
    ) -> Result<(Decision, Option<Vec<Exchange>>), EngineFault> {
        let surroundings = Surroundings { facts: &self.facts, operations: &self.operations };
        let live = LiveReads::default();
        let session = self.store.session(&surroundings, &live, self.settings.session);
        let mut cluster = Spectacles { session, sight, reads };
        if sight == Sight::Watched {
            return Ok((engine.decide(request, &mut cluster)?, None));
        }
        let mut recorder = Recorder::new(&mut cluster);
        let decision = engine.decide(request, &mut recorder)?;
        Ok((decision, Some(recorder.into_exchanges())))
    }

    /// What a review came to. By what was `told` in a live look the guard holds what may deny against the
    /// objects themselves.
    fn findings(
        &self,
        request: &Request,
        decision: Decision,
        reads: &[Exchange],
        told: Option<&[Exchange]>,
    ) -> Result<Vec<Finding>, ReviewError> {
        self.check(request, reads, &decision, &Proofs::default())
            .map_err(|objection| ReviewError::Refused(objection.to_string()))?;
        let Decision { wait_ms, steps, outcome, tallies: _, findings, requeue_after_ms } = decision;
        match outcome {
            Outcome::Failed(failure) => return Err(ReviewError::Failed(failure)),
            Outcome::Done if wait_ms == 0 && steps.is_empty() && requeue_after_ms.is_none() => {}
            Outcome::Done | Outcome::Continue(_) => return Err(ReviewError::Nonsense),
        }
        let Some(told) = told else { return Ok(findings) };
        match findings.iter().find(|finding| !guard::holds(finding, &request.subject, told)) {
            None => Ok(findings),
            Some(finding) => {
                let (rule, volume) = (finding.rule.name(), &finding.volume);
                let why = format!("it finds {rule} of volume {volume:?}, and that is not so");
                Err(ReviewError::Refused(why))
            }
        }
    }
}

/// A session in which claims and volumes are as they were read live, where that is wanted.
struct Spectacles<'a> {
    session: Session<'a>,
    sight: Sight,
    reads: &'a [Exchange],
}

impl Cluster for Spectacles<'_> {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        let live = match (&question, self.sight) {
            (Question::Claim(Source::Overlay | Source::Cache, _), Sight::Watched)
            | (Question::Volume(Source::Overlay | Source::Cache, _), Sight::Watched) => None,
            (Question::Claim(_, key), _) => Some(Question::Claim(Source::Live, key.clone())),
            (Question::Volume(_, name), _) => Some(Question::Volume(Source::Live, name.clone())),
            _ => None,
        };
        match live {
            None => self.session.ask(question),
            Some(live) => match self.reads.iter().find(|read| read.question == live) {
                Some(read) => Ok(read.answer.clone()),
                None => Err(Stop::LiveRead(live)),
            },
        }
    }
}
