//! Shadows: policies and engines that decide beside the active ones, to show what they would change.
//!
//! A shadow decides the request of a decision again, on a thread of its own, after that one was made and
//! secured. It is told what the decision was told; free volumes are those of that moment
//! ([`bindery_store::AsOf`]). What it decides is checked by the guard, compared and dropped. So nothing that
//! a shadow does reaches the cluster, and nothing waits for it.

mod compare;
mod decide;
mod guard;
mod labels;
mod released;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use bindery_core::{Counted, Decision, Engine, Exchange, Question, Request, Subject, Text, Uid};
use bindery_policy::{
    Difference, ENGINE, MATCH_POLICY, Policy, RECLAIM_POLICY, ReclaimRule, Rejections, ShadowMetrics,
    is_sampled,
};
use bindery_store::Revision;
use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

pub(crate) use self::decide::ShadowDecider;
pub(crate) use self::labels::Offered;
use self::released::Counting;
use crate::DifferenceRecord;
use crate::decider::{EngineRun, Policies};

/// Decisions that wait for shadows, at most. What comes when there are so many is dropped: shadows must not
/// take memory from a binder under load. They have the questions and answers of a decision, some KiB each.
const WAITING_MAX: usize = 256;
/// The thread pauses this many times as long as it has just decided, so shadows take at most a tenth of a
/// processor from the binder. A thread of low priority would be stopped while it holds the store's lock.
const PAUSES: u32 = 9;

/// A policy or an engine that decides beside the active ones.
#[derive(Clone)]
pub struct Shadow {
    /// Its name.
    pub name: Text,
    /// The name of the active policy in whose place it decides, if there is one.
    pub replaces: Text,
    /// What decides.
    pub part: ShadowPart,
    /// The share of objects about which it decides, in percent: those that [`is_sampled`] chooses.
    pub sample_percent: u32,
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
            (
                ShadowPart::Engine(_),
                Subject::SyncClaim(_)
                | Subject::SyncVolume(_)
                | Subject::SyncClaimOperation(_)
                | Subject::SyncVolumeOperation(_),
            ) => true,
            _ => false,
        }
    }

    /// Whether an object is in its share.
    fn samples(&self, uid: &Uid) -> bool {
        is_sampled(&uid.0, self.sample_percent)
    }

    /// Whether it may choose other volumes for the scheduler: the engine does not choose them.
    pub(crate) fn looks_at_labels(&self) -> bool {
        matches!(self.part, ShadowPart::Match(_))
    }
}

/// A shadow with the policies of its decisions.
pub(crate) struct Shadowing {
    pub(crate) shadow: Shadow,
    pub(crate) policies: Policies,
    /// The count of released volumes by its reclaimer.
    pub(crate) counting: Mutex<Counting>,
}

/// What shadows are to make again.
pub(crate) struct Made {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) request: Request,
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) active: Active,
    /// The store that the engine saw.
    pub(crate) at: Revision,
    pub(crate) counted: Vec<Counted>,
    pub(crate) rejections: Option<Rejections>,
}

/// What was made.
pub(crate) enum Active {
    /// A decision.
    Decided(Decision),
    /// A choice of volumes for the scheduler.
    Offered(Offered),
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
                let begun = Instant::now();
                decider.compare(&made);
                thread::sleep(PAUSES * begun.elapsed());
            }
        };
        if let Err(error) = thread::Builder::new().name("shadow".to_owned()).spawn(decide) {
            tracing::error!(%error, "there is no thread for shadows, so they decide nothing");
        }
    }

    /// Has the shadows make a decision again.
    pub(crate) fn offer_decision(
        &self,
        engine: &Arc<dyn Engine>,
        request: &Request,
        run: &EngineRun,
        made: &Decision,
    ) {
        // Most clusters have no shadow, and this is called for each decision.
        if run.policies.shadows().next().is_none() {
            return;
        }
        let Some(object) = request.subject.event_object() else { return };
        let concerns = |shadow: &Shadow| shadow.looks_at(request, &run.exchanges);
        self.offer(&run.policies, object.uid(), concerns, || Made {
            engine: Arc::clone(engine),
            policies: Arc::clone(&run.policies),
            request: request.clone(),
            exchanges: run.exchanges.clone(),
            active: Active::Decided(made.clone()),
            at: run.at,
            counted: run.spread_counts.counted.clone(),
            rejections: run.rejections.clone(),
        });
    }

    /// Has the shadows that it concerns, and whose shares have its object, make something again.
    pub(crate) fn offer(
        &self,
        policies: &Policies,
        uid: &Uid,
        concerns: impl Fn(&Shadow) -> bool,
        made: impl FnOnce() -> Made,
    ) {
        let shadows = policies.shadows().filter(|shadow| concerns(shadow));
        let (sampled, others): (Vec<_>, Vec<_>) = shadows.partition(|shadow| shadow.samples(uid));
        for shadow in others {
            shadow.metrics.not_sampled.inc();
        }
        if sampled.is_empty() {
            return;
        }
        match self.queue.try_reserve() {
            Ok(place) => place.send(made()),
            Err(TrySendError::Full(()) | TrySendError::Closed(())) => {
                for shadow in sampled {
                    shadow.metrics.dropped.inc();
                }
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

    fn concerns(&self, shadow: &Shadow) -> bool {
        let concerns = match &self.active {
            Active::Decided(_) => shadow.looks_at(&self.request, &self.exchanges),
            Active::Offered(_) => shadow.looks_at_labels(),
        };
        let object = self.request.subject.event_object();
        concerns && object.is_some_and(|object| shadow.samples(object.uid()))
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
            if !made.concerns(&shadowing.shadow) {
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
                Ok(Some(Err(decide::NotComparable))) => _ = metrics.not_comparable.inc(),
                Ok(None) => {}
                Err(_) => {
                    tracing::error!(shadow = &**name, "a shadow panicked; its decision is not compared");
                    metrics.not_comparable.inc();
                }
            }
        }
    }
}
