//! The loop: takes keys from the queue, one turn in flight per key, many keys at the same time.

use std::sync::Arc;

use bindery_core::{Decision, Key, Reason};
use futures::future;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, Span};

use super::{Binder, Mode, PendingOperation, Synced};
use crate::queue::KeyLock;
use crate::{Port, RETRY_BACKOFF_MAX, SyncError};

/// Most objects that mode steer decides and writes at the same time. Upstream binds one claim after the other
/// with five requests, and each of them would wait behind all that are in flight.
const STEERED_MAX: usize = 16;

/// The tasks of a running binder.
#[derive(Clone)]
struct Tasks {
    tracker: TaskTracker,
    /// No new turn begins, and operations are abandoned: the next run starts each of them anew.
    shutdown: CancellationToken,
    /// Turns in flight are abandoned too.
    abandon: CancellationToken,
}

/// A turn of a key. If it is dropped before it succeeded, by a panic or at shutdown, the key counts as
/// failed.
struct Turn<P: Port> {
    binder: Arc<Binder<P>>,
    /// Held by a turn that may have policies asked.
    _share: Option<OwnedSemaphorePermit>,
    lock: KeyLock,
    span: Span,
    has_ended: bool,
}

impl<P: Port> Binder<P> {
    /// Decides the keys of the queue until `shutdown`. Ends when the decisions in flight have ended, or
    /// after [`super::Settings::shutdown_grace`]; operations are abandoned at once.
    ///
    /// Must not run twice at the same time. It may be called again, when a replica loses its Lease and gets
    /// it back: every run begins with all existing objects. Later changes come through [`Binder::intake`].
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let tasks = Tasks {
            tracker: TaskTracker::new(),
            shutdown: shutdown.clone(),
            abandon: CancellationToken::new(),
        };
        let lists = self.intake.queue_after_lists();
        shutdown.run_until_cancelled(future::join(self.dispatch(&tasks), lists)).await;
        tasks.tracker.close();
        if tokio::time::timeout(self.settings.shutdown_grace, tasks.tracker.wait()).await.is_err() {
            tracing::warn!(tasks = tasks.tracker.len(), "decisions in flight are abandoned at shutdown");
            tasks.abandon.cancel();
            tasks.tracker.wait().await;
        }
        self.intake.close();
        // Backoff timers end with the queue; an operation left backing off would strand its object.
        self.operations.reset();
        self.executor.write_health.reset();
        self.touches.clear();
        self.repeats.clear();
        self.stuck.clear();
    }

    /// Starts turns for ever.
    async fn dispatch(self: &Arc<Self>, tasks: &Tasks) {
        self.intake.until_synced().await;
        if self.settings.mode == Mode::Own {
            self.decider.configuration.plugins.take_over().await;
        }
        tracing::info!("all lists are complete; decisions begin");
        self.intake.open();
        let in_flight_max = match self.settings.mode {
            Mode::Steer => self.settings.in_flight_max.min(STEERED_MAX),
            Mode::Own | Mode::Observe => self.settings.in_flight_max,
        };
        let permits = Arc::new(Semaphore::new(in_flight_max));
        // A turn that has policies asked may wait long for them: claims without policies keep half of all.
        let shares = Arc::new(Semaphore::new(in_flight_max.div_ceil(2)));
        loop {
            // The permit is waited for before the key is taken: the longer a key waits in the queue, the more
            // changes one decision answers.
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
            if !self.store.synced() {
                self.intake.until_synced().await;
                self.observation.forget_versions();
                tracing::info!("all lists are complete again; decisions go on");
            }
            let (lock, share) = self.next_turn(&shares).await;
            // Made here and not in the task, because the task may be abandoned before it begins.
            let span = self.span(lock.key());
            let turn =
                Turn { binder: Arc::clone(self), _share: share, lock, span: span.clone(), has_ended: false };
            let tasks = tasks.clone();
            let abandon = tasks.abandon.clone();
            tasks.tracker.clone().spawn(async move {
                let taken = turn.take(permit, &tasks).instrument(span);
                abandon.run_until_cancelled_owned(taken).await;
            });
        }
    }

    /// Waits for the next key, and takes its lock. A turn that may have policies asked gets one of `shares`;
    /// while there is none, the key is deferred.
    async fn next_turn(&self, shares: &Arc<Semaphore>) -> (KeyLock, Option<OwnedSemaphorePermit>) {
        let queue = self.intake.queue();
        loop {
            let lock = tokio::select! {
                biased;
                Ok(share) = Arc::clone(shares).acquire_owned(), if queue.has_deferred() => {
                    match queue.next_deferred() {
                        Some(lock) => return (lock, Some(share)),
                        None => continue,
                    }
                }
                lock = queue.next() => lock,
            };
            if !self.decider.policies.get().may_be_asked(&self.store, lock.key()) {
                return (lock, None);
            }
            match Arc::clone(shares).try_acquire_owned() {
                Ok(share) => return (lock, Some(share)),
                Err(_) => lock.defer(),
            }
        }
    }
}

impl<P: Port> Turn<P> {
    async fn take(mut self, permit: OwnedSemaphorePermit, tasks: &Tasks) {
        // A claim is about to write the volume, so the volume is decided once, afterwards.
        if matches!(self.lock.key(), Key::Volume(_)) && self.lock.yields() {
            self.has_ended = true;
            return;
        }
        let binder = Arc::clone(&self.binder);
        let synced = binder.sync_in(&mut self.lock).await;
        let operations = self.end(synced);
        // Operations may take long, so they hold no permit.
        drop(permit);
        for pending in operations {
            let (binder, shutdown) = (Arc::clone(&binder), tasks.shutdown.clone());
            tasks.tracker.spawn(async move {
                // The error is logged and counted where it happened.
                let _ = shutdown.run_until_cancelled_owned(binder.perform(pending)).await;
            });
        }
    }

    fn end(mut self, synced: Synced) -> Vec<PendingOperation> {
        let (queue, key) = (self.binder.intake.queue(), self.lock.key());
        if synced.result.is_ok() {
            queue.refresh_after(key, synced.refresh_after);
            self.binder.stuck.forget(key);
        }
        match synced.result {
            Ok(()) if synced.decision.as_ref().is_some_and(waits_for_a_reservation) => {
                queue.postponed(key, synced.requeue_after)
            }
            Ok(()) => queue.succeeded(key, synced.requeue_after),
            Err(SyncError::AwaitsList) => queue.awaits_list(key),
            Err(error) => {
                let delay = queue.failed(key, error.retry_after());
                tracing::debug!(?delay, "to be tried again");
                // What passes soon is not told.
                if delay >= RETRY_BACKOFF_MAX {
                    self.binder.report_stuck(key, &error);
                }
            }
        }
        self.binder.enqueue(key, synced.enqueue);
        self.has_ended = true;
        synced.operations
    }
}

/// Whether a decision does nothing because another one in flight has picked the volume.
fn waits_for_a_reservation(decision: &Decision) -> bool {
    decision.steps.is_empty() && decision.tallies.iter().any(|tally| tally.reason == Reason::InFlight)
}

impl<P: Port> Drop for Turn<P> {
    fn drop(&mut self) {
        if !self.has_ended {
            let why = "a decision ended without result; it is tried again";
            self.span.in_scope(|| tracing::error!(why));
            self.binder.intake.queue().failed(self.lock.key(), None);
        }
    }
}
