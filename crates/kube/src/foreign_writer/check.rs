//! Reacts to another binder: recycling and deleting stop, the operator is told, and they continue when the
//! operator acknowledges.
//!
//! The replica that sees the write stops at once by itself. An annotation on the Lease stops the other
//! replicas and later ones; the operator acknowledges by removing it.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Binder, ForeignWrite, ForeignWriters, Note};
use bindery_core::EventType;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::ForeignWriterMark;
use crate::client::ApiClient;
use crate::events::Events;
use crate::keys::FOREIGN_WRITER;
use crate::lease::LeaseSettings;
use crate::port::{ApiPort, Clock};

/// `reason` of the event on the object that the other binder wrote.
const REASON: &str = "ForeignWriter";
/// The annotation after a restore of etcd.
const RESTORED: &str = "another binder was seen before etcd was restored";
/// How often the annotation is read while it is set. The operator waits for this long at most.
const READ_EVERY: Duration = Duration::from_secs(5);
/// Pause after a request about the Lease that failed.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// Sets the annotation and sees its removal. It costs one request at the beginning of each term of leading,
/// and none after that while the annotation is not set.
pub struct ForeignWriterCheck {
    binder: Arc<Binder<ApiPort>>,
    mark: ForeignWriterMark,
    events: Events,
    clock: Clock,
    /// Namespace and name of the Lease.
    lease: String,
    /// Notified when the annotation is found on the Lease.
    found: Notify,
}

impl ForeignWriterCheck {
    /// The check of this binder, whose annotation is on that Lease. `None` if the binder does not look for
    /// other binders, as in mode steer.
    pub fn new(
        client: &ApiClient,
        binder: &Arc<Binder<ApiPort>>,
        events: &Events,
        clock: Clock,
        lease: &LeaseSettings,
    ) -> Option<Self> {
        binder.intake().foreign_writers()?;
        Some(Self {
            binder: Arc::clone(binder),
            mark: ForeignWriterMark::new(client.clone(), lease),
            events: events.clone(),
            clock,
            lease: format!("{}/{}", lease.namespace, lease.name),
            found: Notify::new(),
        })
    }

    /// Reads the annotation; to be awaited before this replica decides anything.
    pub(crate) async fn catch_up(&self) {
        if let Some(why) = self.mark.until_read().await {
            let lease = &self.lease;
            tracing::error!(lease, why, "recycling and deleting are stopped: another binder was seen");
            self.writers().hold();
            self.found.notify_one();
        }
    }

    /// Watches for other binders, for the operator's acknowledgement and for restores of etcd, until
    /// `shutdown`.
    pub(crate) async fn run(&self, shutdown: CancellationToken) {
        let work = async { tokio::join!(self.follow_writes(), self.follow_restores()) };
        shutdown.run_until_cancelled(work).await;
    }

    /// Sets the annotation again after a restore of etcd: the restored Lease may be older than it.
    async fn follow_restores(&self) {
        let mut regressions = self.binder.intake().freshness().regressions();
        // The sender lives as long as the binder.
        while regressions.changed().await.is_ok() {
            // Without the annotation, recycling and deleting would go on as if the operator had removed it.
            while self.writers().holds()
                && let Err(error) = self.mark.set(RESTORED, (self.clock)()).await
            {
                tracing::error!(%error, "the annotation about another binder cannot be set again");
                tokio::time::sleep(RETRY_EVERY).await;
            }
        }
    }

    async fn follow_writes(&self) {
        let mut last = self.writers().last();
        loop {
            if self.writers().holds() {
                // Another binder writes hundreds of objects; one read of the Lease answers for all.
                tokio::time::sleep(READ_EVERY).await;
            } else {
                tokio::select! {
                    // The sender lives as long as the binder.
                    _ = last.changed() => last.mark_changed(),
                    () = self.found.notified() => continue,
                }
            }
            // Counted before the Lease is read: the operator has not acknowledged later writes.
            let writes = self.writers().writes();
            let seen =
                if last.has_changed().unwrap_or_default() { last.borrow_and_update().clone() } else { None };
            match seen {
                Some(write) => self.report(&write).await,
                None => self.check_acknowledgement(writes).await,
            }
        }
    }

    /// Sets the annotation; the replica that sets it also logs the write and records an event.
    async fn report(&self, write: &ForeignWrite) {
        let ForeignWrite { regarding, author, what } = write;
        let now = (self.clock)();
        let text = format!("{author} wrote {what} of {}", regarding);
        loop {
            match self.mark.set(&text, now).await {
                Ok(false) => return,
                Ok(true) => break,
                Err(error) => {
                    tracing::error!(%error, "other replicas cannot be told of another binder");
                    tokio::time::sleep(RETRY_EVERY).await;
                }
            }
        }
        let (lease, uid) = (&self.lease, regarding.uid());
        tracing::error!(
            object = %regarding, %uid, %author, what, lease,
            "another binder is at work: recycling and deleting are stopped until the annotation is removed"
        );
        let message = format!(
            "{author} wrote {what}, which is the binder's. Recycling and deleting are stopped until the \
             other binder is off and annotation {FOREIGN_WRITER} is removed from Lease {lease}"
        );
        let note =
            Note { regarding: regarding.clone(), event_type: EventType::Warning, reason: REASON, message };
        self.events.emit(&note, now);
    }

    /// Resumes recycling and deleting if the operator has removed the annotation, unless more than `writes`
    /// writes have been seen by then.
    async fn check_acknowledgement(&self, writes: u64) {
        match self.mark.read().await {
            Ok(Some(_)) => {}
            Ok(None) if self.writers().release(writes) => {
                tracing::warn!(
                    lease = self.lease,
                    "the operator has acknowledged; recycling and deleting go on"
                );
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "it is unknown whether the operator has acknowledged"),
        }
    }

    fn writers(&self) -> &ForeignWriters {
        self.binder.intake().foreign_writers().expect("replicas in own mode check for other writers")
    }
}
