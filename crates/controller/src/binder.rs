//! The binder: decides one object at a time and carries out what the guard lets pass.

mod decide;
mod execute;
mod foresee;
mod known;
mod perform;
mod refresh;
mod review;
mod run;
mod world;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bindery_core::{
    Claim, ClaimKey, ClaimTarget, Decision, DecisionLimits, Engine, Event, EventKind, EventType, Lookup,
    Operation, Outcome, Regarding, Request, Source, Subject, Text, Volume, VolumeTarget,
};
use bindery_store::Store;
use tokio::sync::Semaphore;
use tracing::{Instrument as _, Span};

use self::decide::Decided;
use self::execute::again_after;
pub use self::refresh::EVENT_REFRESH;
pub use self::review::{Reviewed, Sight};
use crate::intake::Intake;
use crate::note::{REASON_REFUSED, REASON_UNWRITABLE};
use crate::observe::Observation;
use crate::operations::{OperationMap, Ticket};
use crate::passage::Passage;
use crate::queue::{Queue, Slot};
use crate::upstream::UpstreamMetrics;
use crate::{Facts, Journal, Key, Metrics, Note, Port, SyncError, WriteError};

/// How soon an object is decided again after a write failed that its decision tolerates: upstream leaves that
/// to its resync, whose period this is.
const TOLERATED_RETRY: Duration = Duration::from_secs(15);

/// What a binder is made of.
pub struct Parts<P: Port> {
    /// What the watches know; shared with the [`Intake`] that fills it.
    pub store: Arc<Store>,
    /// The cluster.
    pub port: P,
    /// Who decides.
    pub engine: Arc<dyn Engine>,
    /// What the operator configured.
    pub facts: Facts<P::Template>,
    /// Numbers that bound it.
    pub settings: Settings,
    /// Where decisions are written down.
    pub journal: Option<Arc<dyn Journal>>,
}

/// What becomes of decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They are carried out.
    #[default]
    Own,
    /// Nothing is written, recorded, provisioned or deleted: another binder acts, and is compared with.
    Observe,
}

/// How a binder works, and the numbers that bound it.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What becomes of decisions.
    pub mode: Mode,
    /// Most objects that are decided and written at the same time.
    pub in_flight_max: usize,
    /// Most volumes that are recycled at the same time; the others wait, and are looked at again when it is
    /// their turn.
    pub recycles_max: usize,
    /// Limits of one decision's questions.
    pub session: DecisionLimits,
    /// How long decisions in flight may go on after shutdown; they are a few writes each.
    pub shutdown_grace: Duration,
    /// How soon an object whose last decision recorded an event is decided again, so that the event does not
    /// expire while it is true.
    pub event_refresh: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Own,
            // Enough to keep an API server busy from one connection; what is best is measured, not guessed.
            in_flight_max: 256,
            // Each is a pod, and a request a second to look at it: as many as upstream's whole controller
            // manager makes unless told otherwise.
            recycles_max: 20,
            session: DecisionLimits::default(),
            shutdown_grace: Duration::from_secs(5),
            event_refresh: EVENT_REFRESH,
        }
    }
}

/// Binds claims to volumes and reclaims volumes.
///
/// # Guarantees
///
/// - Nothing is decided before all initial lists are complete.
/// - Nothing is written that [`bindery_core::guard`] has not passed, and nothing after a write that failed
///   but for what the decision says follows regardless.
/// - A volume that a decision picks is reserved until its writes are done, so any number of decisions may be
///   in flight at the same time.
/// - Of one object one decision is in flight. A sync holds the object's slot from its decision to its last
///   write, and an operation from step to step, but not while a plugin works or while it waits: then syncs go
///   on.
pub struct Binder<P: Port> {
    store: Arc<Store>,
    port: P,
    engine: RwLock<Arc<dyn Engine>>,
    facts: Facts<P::Template>,
    settings: Settings,
    journal: Option<Arc<dyn Journal>>,
    operations: Arc<OperationMap>,
    intake: Intake,
    metrics: Arc<Metrics>,
    passage: Passage,
    observation: Observation,
    room_to_recycle: Semaphore,
}

/// What a sync came to.
pub struct Synced {
    /// Whether it succeeded. A conflict is an error like others: the key is tried again.
    pub result: Result<(), SyncError>,
    /// The decision that was carried out, if one was.
    pub decision: Option<Decision>,
    /// Operations that it started: to be given to [`Binder::perform`], one after the other or side by side.
    pub operations: Vec<PendingOperation>,
    /// Keys that it wants decided soon.
    pub enqueue: Vec<Key>,
    /// The key itself is to be decided again after this delay.
    pub requeue_after: Option<Duration>,
    /// The key itself is to be decided again after this delay at the latest, so that its event does not
    /// expire while it is true.
    pub refresh_after: Option<Duration>,
}

/// An operation that was started and has not run yet. Dropped, it counts as never started, and its object is
/// to be decided again.
pub struct PendingOperation {
    operation: Operation,
    subject: OperationSubject,
    ticket: Ticket,
}

/// What an operation is about, as the sync that started it left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationSubject {
    /// A claim.
    Claim(Claim),
    /// A volume.
    Volume(Volume),
}

impl PendingOperation {
    /// The operation.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// What it is about.
    pub fn key(&self) -> Key {
        self.subject.key()
    }
}

impl OperationSubject {
    /// The key of the object.
    pub fn key(&self) -> Key {
        match self {
            Self::Claim(claim) => Key::Claim(claim.key.clone()),
            Self::Volume(volume) => Key::Volume(volume.name.clone()),
        }
    }
}

impl Synced {
    fn nothing() -> Self {
        Self::ended(Ok(()))
    }

    fn ended(result: Result<(), SyncError>) -> Self {
        Self {
            result,
            decision: None,
            operations: Vec::new(),
            enqueue: Vec::new(),
            requeue_after: None,
            refresh_after: None,
        }
    }
}

impl<P: Port> Binder<P> {
    /// A binder over these parts. It does nothing until it is asked to.
    pub fn new(parts: Parts<P>) -> Self {
        let queue = Arc::<Queue>::default();
        // Until somebody runs it.
        queue.close();
        let operations = Arc::new(OperationMap::new(Arc::clone(&queue)));
        let metrics = Arc::<Metrics>::default();
        Self {
            intake: Intake::new(
                parts.settings.mode,
                Arc::clone(&parts.store),
                queue,
                Arc::clone(&operations),
                Arc::clone(&metrics),
            ),
            store: parts.store,
            port: parts.port,
            engine: RwLock::new(parts.engine),
            facts: parts.facts,
            room_to_recycle: Semaphore::new(parts.settings.recycles_max),
            settings: parts.settings,
            journal: parts.journal,
            operations,
            metrics,
            passage: Passage::default(),
            observation: Observation::default(),
        }
    }

    /// The door for what watches deliver.
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// The cluster.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// What the watches know.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Counters of what it did.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Metrics that upstream has too.
    pub fn upstream_metrics(&self) -> &UpstreamMetrics {
        &self.operations.metrics
    }

    /// Whether its writes get through.
    pub fn passage(&self) -> &Passage {
        &self.passage
    }

    /// How many keys wait for their turn.
    pub fn keys_waiting(&self) -> usize {
        self.intake.queue().len()
    }

    /// How many keys have failed in their last turn, and get another.
    pub fn keys_failing(&self) -> usize {
        self.intake.queue().failing()
    }

    /// How many operations run.
    pub fn operations_running(&self) -> usize {
        self.operations.running()
    }

    /// Lets another engine decide from the next decision on; answers the one that did so far. A decision in
    /// flight is finished by the engine that began it.
    pub fn swap_engine(&self, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        std::mem::replace(&mut *self.engine.write().unwrap_or_else(PoisonError::into_inner), engine)
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.engine.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Decides one object and carries the decision out, but for operations: those are handed back.
    ///
    /// Waits while another decision about the object is in flight.
    pub async fn sync(&self, key: &Key) -> Synced {
        let mut slot = self.intake.queue().slot(key).await;
        self.sync_in(&mut slot).instrument(self.span(key)).await
    }

    /// The span of a sync: what is logged meanwhile has the object and its UID.
    fn span(&self, key: &Key) -> Span {
        tracing::error_span!("sync", object = %key, uid = self.uid(key).as_deref())
    }

    fn uid(&self, key: &Key) -> Option<Text> {
        let uid = match key {
            Key::Claim(key) => match self.store.claim(Source::Overlay, key) {
                Lookup::Found(claim) => claim.uid.clone(),
                _ => return self.unreadable_claim(key).map(|regarding| regarding.uid().0.clone()),
            },
            Key::Volume(name) => match self.store.volume(Source::Overlay, name) {
                Lookup::Found(volume) => volume.uid.clone(),
                _ => return self.unreadable_volume(name).map(|regarding| regarding.uid().0.clone()),
            },
        };
        Some(uid.0)
    }

    async fn sync_in(&self, slot: &mut Slot) -> Synced {
        let synced = self.sync_inner(slot).await;
        if let Err(error) = &synced.result {
            self.metrics.sync_errors.count();
            if error.is_conflict() {
                tracing::debug!(%error, "to be decided again");
            } else {
                tracing::warn!(%error, "sync failed");
            }
        }
        synced
    }

    async fn sync_inner(&self, slot: &mut Slot) -> Synced {
        let decided = match self.decide_sync(slot).await {
            Ok(Some(decided)) => decided,
            Ok(None) => {
                return Synced { refresh_after: self.refresh_of_unreadable(slot.key()), ..Synced::nothing() };
            }
            Err(error) => return Synced::ended(Err(error)),
        };
        let Decided { request, exchanges, decision, hold } = decided;
        if self.settings.mode == Mode::Observe {
            let requeue_after = match &request.subject {
                Subject::SyncClaim(claim) => self.observation.decided(claim, foresee::chosen(&decision)),
                _ => None,
            };
            return Synced { requeue_after, ..Synced::nothing() };
        }
        let known = known::Known::new(&request, &exchanges);
        let carried = self.carry_out(&request, &decision, known, None).await;
        drop(hold);
        self.report_unwritable(&request, carried.failure.as_ref());
        let requeue_after = again_after(&decision, &carried);
        Synced {
            result: match (carried.failure, &decision.outcome) {
                (Some(error), _) => Err(error),
                (None, Outcome::Failed(failure)) => Err(SyncError::Failed(failure.clone())),
                (None, Outcome::Done | Outcome::Continue(_)) => Ok(()),
            },
            operations: carried.operations,
            enqueue: carried.enqueue,
            requeue_after,
            refresh_after: self.refresh_after(&decision),
            decision: Some(decision),
        }
    }

    /// The request to decide the object of a key, as it is now; `None` where there is none, or none much
    /// longer.
    fn request(&self, key: &Key) -> Option<Request> {
        let now = self.port.now();
        let subject = match key {
            Key::Claim(key) => match self.store.claim(Source::Overlay, key) {
                Lookup::Found(claim) => Some(Subject::SyncClaim(claim)),
                Lookup::Unreadable(why) => {
                    self.report_unreadable(self.unreadable_claim(key), why);
                    None
                }
                Lookup::Absent | Lookup::Failed(_) => None,
            },
            Key::Volume(name) => match self.store.volume(Source::Overlay, name) {
                Lookup::Found(volume) if self.intake.deletions().is_accepted(&volume) => None,
                Lookup::Found(volume) => Some(Subject::SyncVolume(volume)),
                Lookup::Unreadable(why) => {
                    self.report_unreadable(self.unreadable_volume(name), why);
                    None
                }
                Lookup::Absent => {
                    self.intake.deletions().forget(name);
                    None
                }
                Lookup::Failed(_) => None,
            },
        };
        subject.map(|subject| Request { now, subject })
    }

    // Unreadable objects are few, so a search through all of them costs nothing.
    fn unreadable_claim(&self, key: &ClaimKey) -> Option<Regarding> {
        let (key, found) = self.store.unreadable_claims().into_iter().find(|(found, _)| found == key)?;
        Some(Regarding::Claim(ClaimTarget { key, uid: found.uid, version: found.version }))
    }

    fn unreadable_volume(&self, name: &Text) -> Option<Regarding> {
        let (name, found) = self.store.unreadable_volumes().into_iter().find(|(found, _)| found == name)?;
        Some(Regarding::Volume(VolumeTarget { name, uid: found.uid, version: found.version }))
    }

    /// Tells the user that an object cannot be read, so nothing is done for it (G7 of the design).
    fn report_unreadable(&self, regarding: Option<Regarding>, why: Text) {
        tracing::warn!(%why, "an object cannot be read");
        if let Some(regarding) = regarding {
            self.tell(&Note::from(&Event { regarding, kind: EventKind::Unreadable(why) }));
        }
    }

    /// Tells the user that the guard refused a decision about an object.
    fn report_refusal(&self, request: &Request, why: &str) {
        self.metrics.refusals.count();
        self.warn(request, REASON_REFUSED, why.to_owned());
    }

    /// Tells the user that the API server refuses what is written for an object, whatever has happened to it
    /// meanwhile.
    fn report_unwritable(&self, request: &Request, failure: Option<&SyncError>) {
        if let Some(
            error @ SyncError::Write { error: WriteError::Invalid(_) | WriteError::Forbidden(_), .. },
        ) = failure
        {
            self.warn(request, REASON_UNWRITABLE, format!("the API server refuses to {error}"));
        }
    }

    /// Records a warning about the object of a request.
    fn warn(&self, request: &Request, reason: &'static str, message: String) {
        let Some(regarding) = regarding(request) else { return };
        self.tell(&Note { regarding, event_type: EventType::Warning, reason, message });
    }

    /// Records an event, where events are this binder's to record.
    fn tell(&self, note: &Note) {
        match self.settings.mode {
            Mode::Own => self.port.emit(note),
            Mode::Observe => tracing::info!(reason = note.reason, note.message, "this would be an event"),
        }
    }
}

/// The object of a request, as events name it; reviews are about objects that need not exist.
fn regarding(request: &Request) -> Option<Regarding> {
    let claim = |target: ClaimTarget| Some(Regarding::Claim(target));
    let volume = |target: VolumeTarget| Some(Regarding::Volume(target));
    match &request.subject {
        Subject::SyncClaim(object) => claim(object.target()),
        Subject::SyncVolume(object) => volume(object.target()),
        Subject::SyncClaimOperation(progress) => claim(progress.object.target()),
        Subject::SyncVolumeOperation(progress) => volume(progress.object.target()),
        Subject::ReviewClaim { .. } | Subject::ReviewVolume { .. } => None,
    }
}
