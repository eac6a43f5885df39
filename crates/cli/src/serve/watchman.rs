//! What happens when another binder is seen: recycling and deleting stop, the operator is told, and says when
//! it is over.
//!
//! The replica that sees it stops by itself, at once. The annotation on the Lease is for the others, for
//! those that come later, and for the operator, who removes it.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Binder, ForeignWrite, Note, Vigil};
use bindery_core::EventType;
use bindery_kube::{Alarm, ApiPort, Clock, Events, FOREIGN_WRITER, Raised};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// `reason` of the event on the object that the other binder wrote.
const REASON: &str = "ForeignWriter";
/// `reason` of the event on the Lease after a restore of etcd.
const VERSIONS_WENT_BACK: &str = "VersionsWentBack";
/// How often the Lease is looked at while the alarm is on: so long the operator waits at most.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often it is tried to reach a Lease that cannot be.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// Raises and lifts the alarm. While none is on it costs no request but one at the begin of each term of
/// leading.
pub(super) struct Watchman {
    binder: Arc<Binder<ApiPort>>,
    alarm: Alarm,
    events: Events,
    clock: Clock,
    /// The Lease, as the operator names it.
    lease: String,
    /// The alarm was found on the Lease.
    found: Notify,
}

impl Watchman {
    pub(super) fn new(
        binder: Arc<Binder<ApiPort>>,
        alarm: Alarm,
        events: Events,
        clock: Clock,
        lease: String,
    ) -> Self {
        Self { binder, alarm, events, clock, lease, found: Notify::new() }
    }

    /// Looks whether an alarm is on that this replica has not seen; to be awaited before it decides anything.
    pub(super) async fn catch_up(&self) {
        loop {
            match self.alarm.read().await {
                Ok(None) => return,
                Ok(Some(why)) => {
                    tracing::error!(
                        lease = self.lease,
                        why,
                        "recycling and deleting are stopped: another binder was seen"
                    );
                    self.vigil().hold();
                    self.found.notify_one();
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "it is not known whether another binder was seen; nothing is decided");
                    tokio::time::sleep(RETRY_EVERY).await;
                }
            }
        }
    }

    /// Raises the alarm when another binder is seen, and lifts it when the operator has, until `shutdown`.
    pub(super) async fn run(&self, shutdown: CancellationToken) {
        let watched = async { tokio::join!(self.watch(), self.tell_of_restores()) };
        shutdown.run_until_cancelled(watched).await;
    }

    /// Tells of each restore of etcd, by an event on the Lease. An alarm that was on is raised again: the
    /// Lease may be one of a time before it.
    async fn tell_of_restores(&self) {
        let mut regressions = self.binder.intake().freshness().regressions();
        // The sender lives as long as the binder, so there is no error to see.
        while regressions.changed().await.is_ok() {
            let Some(regression) = regressions.borrow_and_update().clone() else { continue };
            let now = (self.clock)();
            if self.vigil().holds()
                && let Err(error) =
                    self.alarm.raise("another binder was seen before etcd was restored", now).await
            {
                tracing::error!(%error, "the alarm about another binder cannot be raised again");
            }
            let message = format!("{regression}; all kinds are listed again before more is decided");
            if let Err(error) = self.alarm.tell(VERSIONS_WENT_BACK, &message, now).await {
                tracing::warn!(%error, reason = VERSIONS_WENT_BACK, "an event cannot be created");
            }
        }
    }

    async fn watch(&self) {
        let mut last = self.vigil().last();
        loop {
            if self.vigil().holds() {
                // Another binder writes by the hundred; one look answers them all.
                tokio::time::sleep(LOOK_EVERY).await;
            } else {
                tokio::select! {
                    // The sender lives as long as the binder, so there is no error to see.
                    _ = last.changed() => last.mark_changed(),
                    () = self.found.notified() => continue,
                }
            }
            // Before anything is looked at: what is written meanwhile is not what the operator has
            // acknowledged.
            let writes = self.vigil().writes();
            let seen =
                if last.has_changed().unwrap_or_default() { last.borrow_and_update().clone() } else { None };
            match seen {
                Some(write) => self.raise(&write).await,
                None => self.look(writes).await,
            }
        }
    }

    async fn raise(&self, write: &ForeignWrite) {
        let ForeignWrite { regarding, author, what } = write;
        let now = (self.clock)();
        let text = format!("{author} wrote {what} of {}", regarding);
        loop {
            match self.alarm.raise(&text, now).await {
                Ok(Raised::Before) => return,
                Ok(Raised::Now) => break,
                Err(error) => {
                    tracing::error!(%error, "the alarm about another binder cannot be shared with other replicas");
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
            "{author} wrote {what}, which is the binder's. Recycling and deleting are stopped until the other binder is \
             off and annotation {FOREIGN_WRITER} is removed from Lease {lease}"
        );
        let note =
            Note { regarding: regarding.clone(), event_type: EventType::Warning, reason: REASON, message };
        self.events.record(&note, now);
    }

    /// Lifts the alarm where the operator has, for so many writes.
    async fn look(&self, writes: u64) {
        match self.alarm.read().await {
            Ok(Some(_)) => {}
            Ok(None) if self.vigil().release(writes) => {
                tracing::warn!(lease = self.lease, "the alarm is acknowledged; recycling and deleting go on");
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "it is not known whether the alarm is acknowledged"),
        }
    }

    fn vigil(&self) -> &Vigil {
        self.binder
            .intake()
            .vigil()
            .expect("only replicas that may write have a watchman, and they keep vigil")
    }
}
