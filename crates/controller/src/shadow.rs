//! Shadows: policies and engines that decide beside the active ones, to show what they would change.
//!
//! A shadow decides the request of a decision again, on a thread of its own, after that one was made and
//! secured. It is told what the decision was told; free volumes are those of that moment
//! ([`bindery_store::AsOf`]). What it decides is compared and dropped. So nothing that a shadow does reaches
//! the cluster, and nothing waits for it.

mod compare;
mod decide;
mod released;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use bindery_core::{Counted, Decision, Engine, Exchange, Question, Request, Subject, Text};
use bindery_policy::{
    Difference, ENGINE, MATCH_POLICY, Policy, RECLAIM_POLICY, ReclaimRule, Rejections, Rounds, ShadowMetrics,
};
use bindery_store::Revision;
use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

pub(crate) use self::decide::ShadowDecider;
use crate::DifferenceRecord;
use crate::decider::{EngineRun, Policies};

/// Decisions that wait for shadows, at most. What comes when there are so many is dropped: shadows must not
/// take memory from a binder under load. They have the questions and answers of a decision, some KiB each.
const WAITING_MAX: usize = 256;

/// A policy or an engine that decides beside the active ones.
#[derive(Clone)]
pub struct Shadow {
    /// Its name.
    pub name: Text,
    /// The name of the active policy in whose place it decides, if there is one.
    pub replaces: Text,
    /// What decides.
    pub part: ShadowPart,
    /// What it has shown.
    pub metrics: ShadowMetrics,
}

/// What of a decision is another one.
#[derive(Clone)]
pub enum ShadowPart {
    /// The active policies and this one, without the one that it replaces.
    Match(Policy),
    /// The active policies and this reclaimer, without the one that it replaces.
    Reclaim(ReclaimRule),
    /// This engine decides with the active policies.
    Engine(Arc<dyn Engine>),
}

impl Shadow {
    /// The kind of its object.
    pub fn kind(&self) -> &'static str {
        match self.part {
            ShadowPart::Match(_) => MATCH_POLICY,
            ShadowPart::Reclaim(_) => RECLAIM_POLICY,
            ShadowPart::Engine(_) => ENGINE,
        }
    }

    /// Whether it may decide a request otherwise, by what the engine has asked.
    fn looks_at(&self, request: &Request, exchanges: &[Exchange]) -> bool {
        let is_reclaim = |exchange: &Exchange| matches!(exchange.question, Question::Reclaim(_));
        match (&self.part, &request.subject) {
            (ShadowPart::Match(_), Subject::SyncClaim(claim)) => !claim.annotations.bind_completed,
            (ShadowPart::Reclaim(_), Subject::SyncVolume(_)) => exchanges.iter().any(is_reclaim),
            (ShadowPart::Engine(_), Subject::SyncClaim(_) | Subject::SyncVolume(_)) => true,
            _ => false,
        }
    }
}

/// A shadow with the policies of its decisions.
pub(crate) struct Shadowing {
    pub(crate) shadow: Shadow,
    pub(crate) policies: Policies,
    /// What its reclaimer has answered about released volumes.
    pub(crate) rounds: Mutex<Rounds>,
}

/// A decision that shadows are to make again.
pub(crate) struct Made {
    engine: Arc<dyn Engine>,
    policies: Arc<Policies>,
    request: Request,
    exchanges: Vec<Exchange>,
    decision: Decision,
    /// The store that the engine saw.
    at: Revision,
    counted: Vec<Counted>,
    rejections: Option<Rejections>,
}

/// The queue of the shadows, and the thread that decides.
pub(crate) struct Shadows {
    queue: Sender<Made>,
    /// Until the thread begins.
    decisions: Mutex<Option<Receiver<Made>>>,
}

impl Default for Shadows {
    fn default() -> Self {
        let (queue, decisions) = channel(WAITING_MAX);
        Self { queue, decisions: Mutex::new(Some(decisions)) }
    }
}

impl Shadows {
    /// Begins the thread, unless it runs. It ends with the queue.
    pub(crate) fn begin<T: Send + Sync + 'static>(&self, decider: impl FnOnce() -> ShadowDecider<T>) {
        let Some(mut decisions) = self.decisions.lock().take() else { return };
        let decider = decider();
        let decide = move || {
            while let Some(made) = decisions.blocking_recv() {
                decider.compare(&made);
            }
        };
        if let Err(error) = thread::Builder::new().name("shadow".to_owned()).spawn(decide) {
            tracing::error!(%error, "there is no thread for shadows, so they decide nothing");
        }
    }

    /// Has the shadows make a decision again. It costs nothing where none may decide otherwise.
    pub(crate) fn offer(
        &self,
        engine: &Arc<dyn Engine>,
        request: &Request,
        run: &EngineRun,
        made: &Decision,
    ) {
        let shadows = &run.policies.shadows;
        if !shadows.iter().any(|shadowing| shadowing.shadow.looks_at(request, &run.exchanges)) {
            return;
        }
        match self.queue.try_reserve() {
            Ok(place) => place.send(Made {
                engine: Arc::clone(engine),
                policies: Arc::clone(&run.policies),
                request: request.clone(),
                exchanges: run.exchanges.clone(),
                decision: made.clone(),
                at: run.at,
                counted: run.rests.counted.clone(),
                rejections: run.rejections.clone(),
            }),
            Err(TrySendError::Full(()) | TrySendError::Closed(())) => {
                let concerned =
                    shadows.iter().filter(|shadowing| shadowing.shadow.looks_at(request, &run.exchanges));
                concerned.for_each(|shadowing| shadowing.shadow.metrics.count_dropped());
            }
        }
    }
}

impl Made {
    /// The engine that decides for a shadow.
    fn engine_of<'a>(&'a self, shadow: &'a Shadow) -> &'a Arc<dyn Engine> {
        match &shadow.part {
            ShadowPart::Engine(engine) => engine,
            ShadowPart::Match(_) | ShadowPart::Reclaim(_) => &self.engine,
        }
    }
}

impl<T> ShadowDecider<T> {
    /// Records how a shadow decided otherwise.
    fn record(&self, made: &Made, Shadowing { shadow, policies, .. }: &Shadowing, difference: &Difference) {
        if let Some(journal) = &self.journal {
            let (engine, chain) = (made.engine_of(shadow).digest(), policies.chain.digest());
            journal.differed(DifferenceRecord { shadow, engine, chain, difference });
        }
    }

    /// Has every shadow make a decision again, and counts.
    fn compare(&self, made: &Made) {
        for shadowing in &made.policies.shadows {
            let Shadow { name, metrics, .. } = &shadowing.shadow;
            if !shadowing.shadow.looks_at(&made.request, &made.exchanges) {
                continue;
            }
            let decided = catch_unwind(AssertUnwindSafe(|| self.decide(made, shadowing)));
            match decided {
                Ok(Some(Ok(difference))) => {
                    if let Some(difference) = &difference {
                        tracing::debug!(shadow = &**name, ?difference, "a shadow decides otherwise");
                        self.record(made, shadowing, difference);
                    }
                    metrics.count_compared(difference);
                }
                Ok(Some(Err(decide::NotComparable))) => metrics.count_not_comparable(),
                Ok(None) => {}
                Err(_) => {
                    tracing::error!(shadow = &**name, "a shadow panicked; its decision is not compared");
                    metrics.count_not_comparable();
                }
            }
        }
    }
}
