//! Evidence: the request of a decision, and the questions and answers of its engine.
//!
//! With the engine of the recorded digest, a replay gives the same decision to the byte, without a cluster.

use serde::{Deserialize, Serialize};

use crate::{Answer, Cluster, Decision, Question, Request, Stop};

/// One question and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// What the engine asked.
    pub question: Question,
    /// What it was told.
    pub answer: Answer,
}

/// Everything that a decision rests on, and the decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Digest of the engine, as [`crate::Engine::digest`] gives it.
    pub engine: String,
    /// What was to be decided.
    pub request: Request,
    /// The questions and answers, in order.
    pub exchanges: Vec<Exchange>,
    /// What was decided.
    pub decision: Decision,
}

/// Forwards questions to a cluster and records them with the answers.
pub struct Recorder<'a> {
    cluster: &'a mut dyn Cluster,
    exchanges: Vec<Exchange>,
}

impl<'a> Recorder<'a> {
    /// A recorder of questions to `cluster`.
    pub fn new(cluster: &'a mut dyn Cluster) -> Self {
        Self { cluster, exchanges: Vec::new() }
    }

    /// The recorded questions and answers.
    pub fn into_exchanges(self) -> Vec<Exchange> {
        self.exchanges
    }
}

impl Cluster for Recorder<'_> {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        let answer = self.cluster.ask(question.clone())?;
        self.exchanges.push(Exchange { question, answer: answer.clone() });
        Ok(answer)
    }
}

/// Answers from a record: the same questions in the same order get the same answers. Any other question stops
/// the call with [`Stop::NotRecorded`].
pub struct Replayer<'a> {
    exchanges: std::slice::Iter<'a, Exchange>,
}

impl<'a> Replayer<'a> {
    /// Answers from these exchanges.
    pub fn new(exchanges: &'a [Exchange]) -> Self {
        Self { exchanges: exchanges.iter() }
    }

    /// Whether every recorded question was asked.
    pub fn is_exhausted(&self) -> bool {
        self.exchanges.as_slice().is_empty()
    }
}

impl Cluster for Replayer<'_> {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        match self.exchanges.next() {
            Some(exchange) if exchange.question == question => Ok(exchange.answer.clone()),
            _ => Err(Stop::NotRecorded),
        }
    }
}
