//! The binder: decides one object at a time and carries out the decisions that the guard allows.

mod decide;
mod foresee;
mod label;
mod perform;
mod refresh;
mod repeats;
mod report;
mod review;
mod run;
mod sibling_locks;
mod steer;
mod stuck;
mod swap;
mod touches;
mod unanswered;

use std::sync::Arc;
use std::time::Duration;

use bindery_core::{Decision, DecisionLimits, Engine, Key, Outcome, Request, Subject};
use bindery_store::Store;
use parking_lot::RwLock;
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use self::decide::Decided;
pub(crate) use self::perform::OperationSubject;
pub use self::perform::PendingOperation;
pub use self::refresh::EVENT_REFRESH;
use self::repeats::Repeats;
pub use self::review::Reviewed;
use self::sibling_locks::SiblingLocks;
use self::stuck::Stuck;
use self::touches::Touches;
pub(crate) use self::unanswered::Unanswered;
pub use crate::decider::Policies;
use crate::decider::{ActivePolicies, Decider};
use crate::executor::{AGAIN_MIN, Carried, Conflicts, Executor, KnownObjects, NoteTimes, again_after};
use crate::intake::Intake;
use crate::observe::Observation;
use crate::operations::OperationMap;
use crate::queue::{KeyLock, Queue, Timer};
use crate::shadow::Shadows;
use crate::upstream::UpstreamMetrics;
use crate::{Configuration, Journal, Metrics, Port, SyncError, WriteHealth};

/// What a binder is made of.
pub struct Parts<P: Port> {
    /// The watched objects; shared with the [`Intake`] that fills it.
    pub store: Arc<Store>,
    /// The cluster.
    pub port: P,
    /// The engine that decides.
    pub engine: Arc<dyn Engine>,
    /// What the operator configured.
    pub configuration: Configuration<P::Template>,
    /// Its mode and limits.
    pub settings: Settings,
    /// Records decisions; may be left out.
    pub journal: Option<Arc<dyn Journal>>,
}

/// Whether decisions are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They are carried out.
    #[default]
    Own,
    /// Nothing is written, recorded, provisioned or deleted: another binder acts, and Bindery compares its
    /// binds.
    Observe,
    /// Upstream's binder acts, and Bindery reserves the volumes of steered claims ([`bindery_core::steer`]).
    Steer,
}

/// Mode and limits of a binder.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether decisions are carried out.
    pub mode: Mode,
    /// Most objects that are decided and written at the same time.
    pub in_flight_max: usize,
    /// Most volumes that are recycled at the same time. The others wait, and are checked again when their
    /// turn comes.
    pub recycles_max: usize,
    /// Limits of one decision's questions.
    pub session: DecisionLimits,
    /// How long decisions in flight may continue after shutdown; each makes a few writes.
    pub shutdown_grace: Duration,
    /// Whether namespaces are watched although no policy reads them at the start, because a later one may.
    pub watches_namespaces: bool,
    /// How soon an object whose last decision recorded an event is decided again, so that the event does not
    /// expire while it is true.
    pub event_refresh: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Own,
            // Enough to keep an API server busy from one connection, by measurement.
            in_flight_max: 256,
            // Each is a pod and one request per second to read it: together the default rate limit of
            // upstream's whole controller manager.
            recycles_max: 20,
            session: DecisionLimits::default(),
            shutdown_grace: Duration::from_secs(5),
            watches_namespaces: false,
            event_refresh: EVENT_REFRESH,
        }
    }
}

/// Binds claims to volumes and reclaims volumes.
///
/// # Guarantees
///
/// - Nothing is decided before all initial lists are complete.
/// - Every write has passed [`bindery_core::guard`]. After a failed write only those steps are carried out
///   that the decision marks to follow regardless.
/// - A volume that a decision picks is reserved until its writes are done, so any number of decisions may be
///   in flight at the same time.
/// - If the API server may have reserved a volume for a claim, that volume is read before another one is
///   reserved.
/// - Each object has at most one decision in flight. A sync holds the object's lock from its decision to its
///   last write. An operation holds it from step to step, but not while a plugin works or while it waits:
///   then syncs continue.
pub struct Binder<P: Port> {
    store: Arc<Store>,
    port: Arc<P>,
    decider: Decider<P>,
    executor: Executor<P>,
    settings: Settings,
    journal: Option<Arc<dyn Journal>>,
    operations: Arc<OperationMap>,
    intake: Intake,
    metrics: Arc<Metrics>,
    observation: Observation,
    shadows: Shadows,
    recycle_permits: Semaphore,
    sibling_locks: SiblingLocks,
    touches: Touches,
    repeats: Repeats,
    stuck: Stuck,
}

/// The result of a sync.
pub struct Synced {
    /// Whether it succeeded. A conflict is an error like others: the key is tried again.
    pub result: Result<(), SyncError>,
    /// The decision that was carried out, if one was.
    pub decision: Option<Decision>,
    /// Operations that it started. The caller gives them to [`Binder::perform`], in sequence or in parallel.
    pub operations: Vec<PendingOperation>,
    /// Keys that it wants decided soon.
    pub enqueue: Vec<Key>,
    /// The key itself is to be decided again after this delay.
    pub requeue_after: Option<Duration>,
    /// Longest delay until the key itself is decided again, so that its event does not expire while it is
    /// true.
    pub refresh_after: Option<Duration>,
}

impl Synced {
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
        // Until the binder runs.
        queue.close();
        let operations = Arc::new(OperationMap::new(Arc::clone(&queue)));
        let metrics = Arc::<Metrics>::default();
        let Parts { store, port, engine, configuration, settings, journal } = parts;
        let (port, configuration) = (Arc::new(port), Arc::new(configuration));
        let policies = ActivePolicies::new(Arc::clone(&configuration.policies), &configuration.shadows);
        let mut declared = policies.get().declared();
        declared.namespaces |= settings.watches_namespaces;
        let intake = Intake::new(
            settings.mode,
            Arc::clone(&store),
            queue,
            Arc::clone(&operations),
            Arc::clone(&metrics),
            declared,
        );
        store.keep_columns(Arc::clone(configuration.policies.columns()));
        let decider = Decider {
            store: Arc::clone(&store),
            port: Arc::clone(&port),
            engine: RwLock::new(engine),
            configuration: Arc::clone(&configuration),
            policies: policies.clone(),
            operations: Arc::clone(&operations),
            limits: settings.session,
            records: journal.is_some(),
            metrics: Arc::clone(&metrics),
            intake: intake.clone(),
        };
        let executor = Executor {
            port: Arc::clone(&port),
            store: Arc::clone(&store),
            intake: intake.clone(),
            configuration,
            policies,
            operations: Arc::clone(&operations),
            metrics: Arc::clone(&metrics),
            write_health: WriteHealth::default(),
            conflicts: Conflicts::default(),
            unanswered: Unanswered::default(),
            note_times: NoteTimes::default(),
            journal: journal.clone(),
        };
        let recycle_permits = Semaphore::new(settings.recycles_max);
        let (observation, shadows) = (Observation::default(), Shadows::default());
        let binder = Self {
            store,
            port,
            decider,
            executor,
            settings,
            journal,
            operations,
            intake,
            metrics,
            observation,
            shadows,
            recycle_permits,
            sibling_locks: SiblingLocks::default(),
            touches: Touches::default(),
            repeats: Repeats::default(),
            stuck: Stuck::default(),
        };
        if binder.policies().shadows().next().is_some() {
            binder.begin_shadows();
        }
        binder
    }

    /// Takes the deliveries of the watches.
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// The cluster.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The watched objects.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Counters of what it did.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The policies with what they have done.
    pub fn policies(&self) -> Arc<Policies> {
        self.decider.policies.get()
    }

    /// How many released volumes a reclaimer has kept to which no loaded one applies any more.
    pub fn kept_without_policy(&self) -> usize {
        self.decider.policies.get().left(&self.store)
    }

    /// Metrics that upstream has too.
    pub fn upstream_metrics(&self) -> &UpstreamMetrics {
        &self.operations.metrics
    }

    /// Whether its writes get through.
    pub fn write_health(&self) -> &WriteHealth {
        &self.executor.write_health
    }

    /// How many keys wait for their turn.
    pub fn keys_waiting(&self) -> usize {
        self.intake.queue().len()
    }

    /// Number of keys whose last turn failed, and that get another turn.
    pub fn keys_failing(&self) -> usize {
        self.intake.queue().failing()
    }

    /// How many operations run.
    pub fn operations_running(&self) -> usize {
        self.operations.running()
    }

    /// Decides one object and carries the decision out, except for operations, which it returns.
    ///
    /// Waits while another decision about the object is in flight.
    pub async fn sync(&self, key: &Key) -> Synced {
        let mut lock = self.intake.queue().lock(key).await;
        self.sync_in(&mut lock).instrument(self.span(key)).await
    }

    async fn sync_in(&self, lock: &mut KeyLock) -> Synced {
        let synced = match self.settings.mode {
            Mode::Own | Mode::Steer => self.sync_with_labels(lock).await,
            Mode::Observe => self.sync_inner(lock).await,
        };
        if let Err(error) = &synced.result {
            self.metrics.sync_errors.inc();
            if error.is_conflict() {
                tracing::debug!(%error, "to be decided again");
            } else {
                tracing::warn!(%error, "sync failed");
            }
        }
        synced
    }

    async fn sync_inner(&self, lock: &mut KeyLock) -> Synced {
        let decided = match self.decide_sync(lock).await {
            Ok(Some(decided)) => decided,
            Ok(None) => {
                return Synced {
                    refresh_after: self.refresh_of_unreadable(lock.key()),
                    ..Synced::ended(Ok(()))
                };
            }
            Err(error) => return Synced::ended(Err(error)),
        };
        let Decided { request, exchanges, decision, rejections, unscored, locks } = decided;
        if self.settings.mode == Mode::Observe {
            let requeue_after = match &request.subject {
                Subject::SyncClaim(claim) => self.observation.decided(claim, decision.chosen()),
                _ => None,
            };
            return Synced { requeue_after, ..Synced::ended(Ok(())) };
        }
        let known = KnownObjects::new(&request, &exchanges);
        let rejections = rejections.as_ref();
        let mut carried = self.executor.carry_out(&request, &decision, known, None, rejections).await;
        self.keep_note(&request, &mut carried).await;
        drop(locks);
        self.report_unwritable(&request, carried.failure.as_ref().or(carried.tolerated.as_ref()));
        self.report_unscored(&request, &decision, unscored.as_ref());
        let is_told = self.report_rejections(&request, &decision, rejections);
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
            refresh_after: self.refresh_after(&decision).or(is_told.then_some(self.settings.event_refresh)),
            decision: Some(decision),
        }
    }

    /// Notes facts of the bound claim on the volume that was decided, after the writes of the decision.
    async fn keep_note(&self, request: &Request, carried: &mut Carried) {
        let Subject::SyncVolume(volume) = &request.subject else { return };
        if carried.failure.is_some() {
            return;
        }
        let volume = Arc::clone(carried.known.written_volume(&volume.target()).unwrap_or(volume));
        match self.executor.keep_note(&volume).await {
            Ok(None) => {}
            Ok(Some(wait)) => carried.again_within(wait),
            Err(error) => carried.failure = Some(error),
        }
    }

    /// Queues the claims that a decision wants decided soon. A decision about a claim may name that claim,
    /// and two claims may name each other, so they wait for a while: otherwise they would be decided without
    /// end.
    fn enqueue(&self, by: &Key, keys: Vec<Key>) {
        let queue = self.intake.queue();
        match by {
            Key::Volume(_) => queue.add_all(keys),
            Key::Claim(_) => {
                keys.into_iter().for_each(|key| queue.add_after(key, Timer::Requeue, AGAIN_MIN));
            }
        }
    }
}
