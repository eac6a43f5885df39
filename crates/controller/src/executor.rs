//! Carries out the steps of a decision that the guard has passed: one request for each, with the version that
//! the previous one returned.

mod conflicts;
mod known;
mod notes;

use std::sync::Arc;
use std::time::Duration;

use bindery_core::steer::SteerWrite;
use bindery_core::{
    Action, ClaimPhase, Decision, Follows, Key, Operation, PluginMatch, PluginOperation, Request, Subject,
    Text, Version,
};
use bindery_policy::Rejections;
use bindery_store::{Kind, Store};
use tokio::time::Instant;
use tracing::Instrument as _;

pub(crate) use self::conflicts::{Conflicts, STALE_AFTER};
pub(crate) use self::known::KnownObjects;
pub(crate) use self::notes::NoteTimes;
use crate::binder::{OperationSubject, Unanswered};
use crate::decider::ActivePolicies;
use crate::intake::Intake;
use crate::operations::{NotStarted, OperationMap};
use crate::queue::Timer;
use crate::write::{Target, edited_finalizers, targets_mut};
use crate::{
    Configuration, Journal, Metrics, Note, PendingOperation, Port, SyncError, Write, WriteError, WriteHealth,
    WriteRecord, Written,
};

/// Delay until an object is decided again after a failed write that its decision tolerates: the period of
/// upstream's resync, which repeats such a write.
const TOLERATED_RETRY: Duration = Duration::from_secs(15);

/// Shortest delay after which an object is decided again at the request of its own decision. The default
/// engine asks for 15 s.
pub(crate) const AGAIN_MIN: Duration = Duration::from_secs(1);

/// The result of carrying out the steps.
#[derive(Default)]
pub(crate) struct Carried {
    /// The failure that ended the steps, if there was one.
    pub(crate) failure: Option<SyncError>,
    /// The last failure that the decision tolerates.
    pub(crate) tolerated: Option<SyncError>,
    /// Operations that were started.
    pub(crate) operations: Vec<PendingOperation>,
    /// Keys to be decided soon.
    pub(crate) enqueue: Vec<Key>,
    /// Decide again after this delay: an operation backs off, or a tolerated write failed.
    pub(crate) again_after: Option<Duration>,
    /// The plugin call that ends the steps.
    pub(crate) call: Option<(Text, PluginOperation)>,
    /// The objects as the writes left them.
    pub(crate) known: KnownObjects,
}

/// Whether the steps still follow each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sequence {
    Unbroken,
    Broken,
}

impl Carried {
    pub(crate) fn again_within(&mut self, delay: Duration) {
        self.again_after = Some(self.again_after.map_or(delay, |earlier| earlier.min(delay)));
    }
}

/// Makes the writes of decisions, and lays their results over the store.
pub(crate) struct Executor<P: Port> {
    pub(crate) port: Arc<P>,
    pub(crate) store: Arc<Store>,
    pub(crate) intake: Intake,
    pub(crate) configuration: Arc<Configuration<P::Template>>,
    pub(crate) policies: ActivePolicies,
    pub(crate) operations: Arc<OperationMap>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) write_health: WriteHealth,
    pub(crate) conflicts: Conflicts,
    pub(crate) unanswered: Unanswered,
    pub(crate) note_times: NoteTimes,
    pub(crate) journal: Option<Arc<dyn Journal>>,
}

impl<P: Port> Executor<P> {
    /// Carries out the steps in order, each as its [`Follows`] says. Events on the claim tell of the
    /// rejections.
    pub(crate) async fn carry_out(
        &self,
        request: &Request,
        decision: &Decision,
        known: KnownObjects,
        template: Option<&P::Template>,
        rejections: Option<&Rejections>,
    ) -> Carried {
        let mut carried = Carried { known, ..Carried::default() };
        let mut sequence = Sequence::Unbroken;
        for step in &decision.steps {
            if sequence == Sequence::Broken && step.follows != Follows::Regardless {
                // A step that was not carried out must not count as done, even if the decision tolerates the
                // failure before it.
                if is_awaited(&step.action) && carried.failure.is_none() {
                    carried.failure = carried.tolerated.take();
                }
                continue;
            }
            let action = match &step.action {
                Action::Emit(event) => {
                    self.port.emit(&Note::of(event, rejections));
                    continue;
                }
                action => action,
            };
            let Err(error) = self.step(request, action, template, &mut carried).await else { continue };
            match step.follows {
                Follows::Success => {
                    carried.failure = Some(error);
                    sequence = Sequence::Broken;
                }
                Follows::Tolerated => {
                    tracing::warn!(%error, "a write failed that its decision does not depend on");
                    // Upstream leaves the repetition to its resync.
                    carried.again_within(error.retry_after().unwrap_or_default().max(TOLERATED_RETRY));
                    carried.tolerated = Some(error);
                    sequence = Sequence::Broken;
                }
                Follows::Regardless => tracing::warn!(%error, "a last write failed"),
            }
        }
        carried
    }

    async fn step(
        &self,
        request: &Request,
        action: &Action,
        template: Option<&P::Template>,
        carried: &mut Carried,
    ) -> Result<(), SyncError> {
        match action {
            Action::EnqueueClaim(key) => carried.enqueue.push(Key::Claim(key.clone())),
            Action::StartOperation(operation) => self.start_operation(request, operation, carried),
            Action::CallPlugin { plugin, operation } => carried.call = Some((plugin.clone(), *operation)),
            write => {
                if let Some(note) = self.note_before(write, &carried.known) {
                    carried.known.wrote(&self.write(&note).await?);
                }
                let (annotations, policy) = self.notes(write, &carried.known);
                let mut write = to_write(write, &carried.known, template).map_err(SyncError::Unwritable)?;
                (write.annotations, write.reclaim_policy) = (annotations, policy);
                let written = self.write(&write).await?;
                carried.known.wrote(&written);
            }
        }
        Ok(())
    }

    /// Makes one write and lays the returned object over the watch cache.
    async fn write(&self, write: &Write<P::Template>) -> Result<Written, SyncError> {
        let result = self.send(write.name(), write.target(), self.port.write(write)).await;
        if let Action::ReserveVolume { volume, claim, .. } = &write.action {
            self.unanswered.reserved(claim, volume, &result, &self.store);
        }
        self.measure(write, result.is_ok());
        if let Ok(written) = &result {
            self.assume(write, written);
        }
        result
    }

    /// Makes one write of mode steer and lays the returned object over the watch cache.
    pub(crate) async fn steer(&self, write: &SteerWrite) -> Result<(), SyncError> {
        let written = self.send(write.name(), write.into(), self.port.steer(write)).await?;
        self.lay(&written);
        Ok(())
    }

    /// Sends one write, and takes note of the answer.
    async fn send(
        &self,
        name: &'static str,
        target: Target<'_>,
        request: impl Future<Output = Result<Written, WriteError>>,
    ) -> Result<Written, SyncError> {
        let (object, uid) = (target.name(), target.uid());
        let span =
            tracing::debug_span!("write", write = name, written = object, written_uid = uid.as_deref());
        let sent = self.intake.freshness().sent(target.kind());
        let began = Instant::now();
        let result = request.instrument(span).await;
        self.write_health.tried(&object, began, result.as_ref().err());
        if let Some(journal) = &self.journal {
            let result = result.as_ref().map(Written::version).map_err(ToString::to_string);
            let (uid, version, kind) = (uid.as_deref(), target.version(), target.kind());
            let version = version.as_ref();
            journal.wrote(WriteRecord { write: name, kind, object: &object, uid, version, result });
        }
        match result {
            Ok(written) => {
                self.metrics.writes.inc();
                tracing::debug!(write = name, written = object, written_uid = uid.as_deref(), "written");
                // A write that changes nothing is answered with the version that was there.
                if let Some(version) =
                    written.version().filter(|version| target.version().as_ref() != Some(*version))
                {
                    self.intake.answered(&sent, version);
                }
                self.conflicts.written(target.kind(), &object);
                Ok(written)
            }
            Err(error) => {
                if error.is_conflict() {
                    self.metrics.conflicts.inc();
                } else {
                    self.metrics.write_errors.inc();
                }
                if matches!(error, WriteError::Conflict(_) | WriteError::NotFound(_))
                    && let Some(version) = target.version()
                {
                    self.refresh_stale(target.kind(), &object, &version);
                }
                Err(SyncError::Write { write: name, object, error })
            }
        }
    }

    /// The API server has another version of an object than the cache, or none. Lists its kind again if the
    /// cache does not get the change or the deletion.
    pub(crate) fn refresh_stale(&self, kind: Kind, object: &str, version: &Version) {
        if self.conflicts.refused(kind, object, version) {
            tracing::warn!(%kind, object, "the cached version is stale; listing again");
            self.intake.freshness().want_list(kind);
        }
    }

    /// Counts a write where upstream does.
    fn measure(&self, write: &Write<P::Template>, succeeded: bool) {
        let metrics = &self.operations.metrics;
        match &write.action {
            Action::SetClaimStatus { claim, phase: ClaimPhase::Bound, .. } if succeeded => {
                metrics.done(&claim.uid)
            }
            Action::SetClaimClass { .. } => {
                metrics.classes.inc();
                metrics.class_errors.inc_by(u64::from(!succeeded));
            }
            _ => {}
        }
    }

    fn assume(&self, write: &Write<P::Template>, written: &Written) {
        self.lay(written);
        if let (Written::Deletion, Action::DeleteVolume { volume }) = (written, &write.action) {
            self.intake.deletions().accept(volume, &self.store);
            let key = Key::Volume(volume.name.clone());
            self.intake.queue().add_after(key, Timer::Operation, STALE_AFTER);
        }
    }

    /// Lays an object over the watch cache, as a write or a live read has returned it.
    pub(crate) fn lay(&self, written: &Written) {
        match written {
            Written::Volume(volume) => self.intake.changed(&self.store.assume_volume(volume.clone())),
            Written::Claim(claim) => self.intake.changed(&self.store.assume_claim(claim.clone())),
            Written::Deletion => {}
        }
    }

    fn start_operation(&self, request: &Request, operation: &Operation, carried: &mut Carried) {
        let subject = match &request.subject {
            Subject::SyncClaim(claim) => OperationSubject::Claim(
                carried.known.written_claim(&claim.target()).unwrap_or(claim).as_ref().clone(),
            ),
            Subject::SyncVolume(volume) => OperationSubject::Volume(
                carried.known.written_volume(&volume.target()).unwrap_or(volume).as_ref().clone(),
            ),
            // Operations and reviews start no operation: the guard refuses it, so it can be ignored here.
            _ => return,
        };
        match self.operations.start(operation.kind, &operation.uid, subject.key()) {
            Ok(ticket) => {
                self.operations.metrics.start(operation, self.plugin_of(&subject));
                carried.operations.push(PendingOperation { operation: operation.clone(), subject, ticket })
            }
            // The end of the running operation, or of the stop, wakes the object.
            Err(NotStarted::Running | NotStarted::Held) => {}
            Err(NotStarted::BackingOff(delay)) => carried.again_within(delay),
        }
    }

    /// The plugin that deletes a volume, as upstream's metrics name it: the in-tree plugin, else the
    /// provisioner of its class.
    fn plugin_of(&self, subject: &OperationSubject) -> Option<Text> {
        let OperationSubject::Volume(volume) = subject else { return None };
        match self.configuration.plugins.supporting(volume) {
            PluginMatch::One(plugin) => Some(plugin.name),
            _ => self.store.class(&volume.class).found().map(|class| class.provisioner.clone()),
        }
    }
}

/// Delay after which the engine wants the object decided again, but not so short that the engine could keep
/// the binder busy for ever.
pub(crate) fn again_after(decision: &Decision, carried: &Carried) -> Option<Duration> {
    let asked = decision.requeue_after_ms.map(|delay| Duration::from_millis(delay).max(AGAIN_MIN));
    [asked, carried.again_after].into_iter().flatten().min()
}

/// Whether the result of the action determines how an operation continues.
fn is_awaited(action: &Action) -> bool {
    matches!(action, Action::CallPlugin { .. } | Action::CreateVolume { .. })
}

/// The write of an action, in the versions that earlier writes returned. An error: the action edits the
/// finalizers of a volume that its decision never read.
fn to_write<T: Clone>(
    action: &Action,
    known: &KnownObjects,
    template: Option<&T>,
) -> Result<Write<T>, String> {
    let mut write = Write::from(action.clone());
    let (volume, claim) = targets_mut(&mut write.action);
    if let Some(target) = volume
        && let Some(written) = known.written_volume(target)
    {
        *target = written.target();
    }
    if let Some(target) = claim
        && let Some(written) = known.written_claim(target)
    {
        *target = written.target();
    }
    match action {
        Action::AnnotateVolume { volume, in_tree_finalizer, external_finalizer, .. } => {
            let read = known.volume(volume).ok_or_else(|| {
                format!(
                    "the decision edits finalizers of version {} of volume {:?}, which it never read",
                    volume.version, volume.name
                )
            })?;
            write.finalizers = edited_finalizers(read, *in_tree_finalizer, *external_finalizer);
        }
        Action::CreateVolume { .. } => write.template = template.cloned(),
        _ => {}
    }
    Ok(write)
}
