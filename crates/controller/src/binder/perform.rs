//! Runs long operations: every step of one is a decision of its own ([`bindery_core::Progress`]).

use std::ops::ControlFlow;

use bindery_core::{
    Answer, Claim, Exchange, Key, Lookup, Operation, OperationKind, Outcome, PluginOperation, Point,
    Progress, Question, Request, Returned, Source, Subject, Text, Volume,
};

use bindery_store::Kind;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::Binder;
use super::decide::Decided;
use crate::executor::{Carried, KnownObjects, STALE_AFTER, again_after};
use crate::intake::Role;
use crate::operations::Ticket;
use crate::queue::{KeyLock, Timer};
use crate::{OperationError, Order, PluginError, Plugins, Port, SyncError, WriteError};

/// Most steps of one operation. The longest, a provision whose volume cannot be created and whose asset
/// cannot be deleted, takes 13.
const STEPS_MAX: u32 = 64;

/// An operation that was started and has not run yet. If it is dropped, it counts as never started, and its
/// object must be decided again.
pub struct PendingOperation {
    pub(crate) operation: Operation,
    pub(crate) subject: OperationSubject,
    pub(crate) ticket: Ticket,
}

/// The object of an operation, as the sync that started the operation left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OperationSubject {
    Claim(Claim),
    Volume(Volume),
}

impl PendingOperation {
    /// The operation.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }
}

impl OperationSubject {
    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Claim(claim) => Key::Claim(claim.key.clone()),
            Self::Volume(volume) => Key::Volume(volume.name.clone()),
        }
    }
}

/// The state of an operation between its steps.
struct RunningOperation<T> {
    operation: Operation,
    subject: OperationSubject,
    fresh: Option<Volume>,
    point: Point,
    returned: Returned,
    template: Option<T>,
    /// Whether a plugin was called that provisions, and the engine has not found an end for that yet: it may
    /// have made storage that no volume is known to have.
    may_leave_storage: bool,
}

impl<P: Port> Binder<P> {
    /// Runs an operation to its end. After a failure no operation of its name starts until its backoff has
    /// passed; then its object is decided again.
    ///
    /// Waits while another decision about the object is in flight. No other decision comes between two steps,
    /// unless a plugin works or the operation waits, so the next step finds the object as the last one wrote
    /// it.
    ///
    /// May be dropped at any point, because a crash may end it at any point: its object is decided again,
    /// which starts it anew.
    ///
    /// # Errors
    ///
    /// The operation failed; it has been logged and counted.
    pub async fn perform(&self, pending: PendingOperation) -> Result<(), OperationError> {
        let (key, operation) = (pending.subject.key(), &pending.operation);
        let span =
            tracing::error_span!("operation", object = %key, uid = &*operation.uid.0, kind = ?operation.kind);
        self.perform_in_span(key, pending).instrument(span).await
    }

    async fn perform_in_span(&self, key: Key, pending: PendingOperation) -> Result<(), OperationError> {
        let PendingOperation { operation, subject, ticket } = pending;
        let uid = operation.uid.clone();
        // Before any decision, because an operation that has waited must not act on old facts.
        let _permit = self.permit_for(operation.kind).await;
        let mut lock = self.intake.queue().lock(&key).await;
        let mut running = RunningOperation::new(operation, subject);
        let result = self.run_steps(&mut lock, &mut running).await;
        match &result {
            Ok(()) => {
                self.metrics.operations.inc();
            }
            Err(error) => {
                self.metrics.operation_errors.inc();
                self.operations.metrics.failed(&uid);
                tracing::warn!(%error, "operation failed");
            }
        }
        // Before the lock is released, so that the next decision finds the operation ended.
        ticket.finish(result.is_ok());
        result
    }

    /// Waits until one more operation of that kind may run.
    async fn permit_for(&self, kind: OperationKind) -> Option<SemaphorePermit<'_>> {
        match kind {
            // It is never closed.
            OperationKind::Recycle => self.recycle_permits.acquire().await.ok(),
            OperationKind::Delete | OperationKind::Provision | OperationKind::ProvisionExternal => None,
        }
    }

    async fn run_steps(
        &self,
        lock: &mut KeyLock,
        running: &mut RunningOperation<P::Template>,
    ) -> Result<(), OperationError> {
        for _ in 0..STEPS_MAX {
            if self.run_step(lock, running).await?.is_break() {
                return Ok(());
            }
        }
        Err(OperationError::Endless(STEPS_MAX))
    }

    /// Makes the next step. Returns whether the operation continues.
    async fn run_step(
        &self,
        lock: &mut KeyLock,
        running: &mut RunningOperation<P::Template>,
    ) -> Result<ControlFlow<()>, OperationError> {
        let request = running.request(self.port.now());
        let decided = self.decide(lock, Role::Operation, || Some(request.clone())).await?;
        let Some(Decided { request, exchanges, decision, locks, .. }) = decided else {
            return Ok(ControlFlow::Break(()));
        };
        // Every operation on a volume deletes or recycles it, so each of its steps is held back.
        if matches!(running.subject, OperationSubject::Volume(_)) {
            self.may_reclaim(running)?;
        }
        let known = KnownObjects::new(&request, &exchanges);
        let mut carried =
            self.executor.carry_out(&request, &decision, known, running.template.as_ref(), None).await;
        drop(locks);
        self.enqueue(lock.key(), std::mem::take(&mut carried.enqueue));
        if let Some(delay) = again_after(&decision, &carried) {
            self.intake.queue().add_after(lock.key().clone(), Timer::Requeue, delay);
        }
        // If a step records no event, the event of the sync that started the operation still has to be
        // refreshed.
        if let Some(delay) = self.refresh_after(&decision) {
            self.intake.queue().add_after(lock.key().clone(), Timer::Refresh, delay);
        }
        // After a restore of etcd the watch may not say that the volume is gone, or that it is back.
        if let OperationSubject::Volume(volume) = &running.subject
            && exchanges.iter().any(is_gone)
        {
            self.executor.refresh_stale(Kind::Volume, &volume.name, &volume.version);
            self.intake.queue().add_after(lock.key().clone(), Timer::Operation, STALE_AFTER);
        }
        self.report_unwritable(&request, carried.tolerated.as_ref());
        running.learn(&exchanges, &carried);
        if carried.failure.is_none() && !matches!(decision.outcome, Outcome::Continue(_)) {
            running.may_leave_storage = false;
        }
        match (decision.outcome, carried.failure.take()) {
            (Outcome::Done, None) => Ok(ControlFlow::Break(())),
            (Outcome::Failed(failure), None) => Err(SyncError::Failed(failure).into()),
            (Outcome::Done | Outcome::Failed(_), Some(error)) => Err(error.into()),
            (Outcome::Continue(point), Some(error)) => {
                running.goes_on(point, returned(error));
                Ok(ControlFlow::Continue(()))
            }
            (Outcome::Continue(point), None) => {
                let returned = match &carried.call {
                    None => Returned::Success,
                    // A plugin may work for minutes, and syncs continue meanwhile.
                    Some((plugin, call)) => {
                        lock.release_during(self.call_plugin(running, plugin, *call)).await?
                    }
                };
                running.goes_on(point, returned);
                Ok(ControlFlow::Continue(()))
            }
        }
    }

    /// Fails while recycling and deleting are stopped; the object is decided again when the stop ends.
    fn may_reclaim(&self, running: &RunningOperation<P::Template>) -> Result<(), SyncError> {
        if self.operations.holds_back(&running.subject.key()) { Err(SyncError::Held) } else { Ok(()) }
    }

    async fn call_plugin(
        &self,
        running: &mut RunningOperation<P::Template>,
        plugin: &Text,
        call: PluginOperation,
    ) -> Result<Returned, OperationError> {
        let plugins: &Plugins<P::Template> = &self.decider.configuration.plugins;
        let Some(plugin) = plugins.get(plugin) else {
            return Err(OperationError::Nonsense(format!("there is no plugin {plugin:?}")));
        };
        // Discarding deletes too: another binder provisions under the same name.
        if call != PluginOperation::Provision {
            self.may_reclaim(running)?;
        }
        let (name, began) = (plugin.describe().name, Instant::now());
        let result = match (call, &running.subject) {
            (PluginOperation::Provision, OperationSubject::Claim(claim)) => {
                let order = Order::of(claim);
                running.may_leave_storage = true;
                plugin.provision(&order).await.map(|template| running.template = Some(template))
            }
            (PluginOperation::Delete, OperationSubject::Volume(volume)) => plugin.delete(volume).await,
            (PluginOperation::Recycle, OperationSubject::Volume(volume)) => {
                plugin.recycle(running.fresh.as_ref().unwrap_or(volume)).await
            }
            (PluginOperation::Delete, OperationSubject::Claim(_)) => match running.template.take() {
                Some(template) => {
                    let result = plugin.discard(&template).await;
                    running.template = Some(template);
                    result
                }
                None => return Err(OperationError::Nonsense("nothing was provisioned".to_owned())),
            },
            (PluginOperation::Provision, OperationSubject::Volume(_))
            | (PluginOperation::Recycle, OperationSubject::Claim(_)) => {
                return Err(OperationError::Nonsense(format!("{call:?} of {}", running.subject.key())));
            }
        };
        self.operations.metrics.called(&name, call, began.elapsed(), result.is_ok());
        Ok(match result {
            Ok(()) => Returned::Success,
            Err(PluginError::InUse(error)) => Returned::InUse(error),
            Err(PluginError::Failed(error)) => Returned::Failed(error),
        })
    }
}

impl<T> RunningOperation<T> {
    fn new(operation: Operation, subject: OperationSubject) -> Self {
        let (point, returned) = (Point::Start, Returned::Success);
        Self { operation, subject, fresh: None, point, returned, template: None, may_leave_storage: false }
    }

    fn request(&self, now: bindery_core::Timestamp) -> Request {
        let subject = match &self.subject {
            OperationSubject::Claim(claim) => Subject::SyncClaimOperation(self.progress(claim.clone())),
            OperationSubject::Volume(volume) => Subject::SyncVolumeOperation(self.progress(volume.clone())),
        };
        Request { now, subject }
    }

    fn progress<O>(&self, object: O) -> Progress<O> {
        Progress {
            operation: self.operation.clone(),
            object,
            fresh: self.fresh.clone(),
            point: self.point,
            returned: self.returned.clone(),
        }
    }

    /// Keeps the objects that a step read and wrote: the claim and the fresh volume as the writes left them.
    /// As in upstream, the volume of the sync stays as it was.
    fn learn(&mut self, exchanges: &[Exchange], carried: &Carried) {
        let read = exchanges.iter().rev().find_map(|exchange| match (&exchange.question, &exchange.answer) {
            (Question::Volume(Source::Live, _), Answer::Volume(Lookup::Found(volume))) => Some(volume),
            _ => None,
        });
        if let Some(volume) = read {
            self.fresh = Some(volume.as_ref().clone());
        }
        if let Some(fresh) = &mut self.fresh
            && let Some(written) = carried.known.written_volume(&fresh.target())
        {
            *fresh = written.as_ref().clone();
        }
        if let OperationSubject::Claim(claim) = &mut self.subject
            && let Some(written) = carried.known.written_claim(&claim.target())
        {
            *claim = written.as_ref().clone();
        }
    }

    fn goes_on(&mut self, point: Point, returned: Returned) {
        (self.point, self.returned) = (point, returned);
    }
}

impl<T> Drop for RunningOperation<T> {
    fn drop(&mut self) {
        // It must not be deleted here: the next leader may have given it to the same claim, by the same name.
        if self.may_leave_storage
            && let OperationSubject::Claim(claim) = &self.subject
        {
            // The log has each cause once a second, so each volume must be a cause of its own.
            let volume = Order::of(claim).name;
            tracing::warn!(
                %volume,
                "ended while provisioning, before the volume was known to be created; if the claim is \
                 deleted now, the provisioned storage is left behind"
            );
        }
    }
}

/// Whether a live read has shown that a volume is gone.
fn is_gone(exchange: &Exchange) -> bool {
    matches!(exchange.question, Question::Volume(Source::Live, _))
        && matches!(exchange.answer, Answer::Volume(Lookup::Absent))
}

/// How a failed write is reported to the operation.
fn returned(error: SyncError) -> Returned {
    match error {
        SyncError::Write { error: WriteError::AlreadyExists(_), .. } => Returned::AlreadyExists,
        SyncError::Write { error, .. } => Returned::Failed(error.message().into()),
        error => Returned::Failed(error.to_string().into()),
    }
}
