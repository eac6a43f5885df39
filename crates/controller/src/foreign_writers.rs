//! The check for other binders, such as upstream's loop that was switched back on.
//!
//! Two binders on one cluster still bind each claim once, because every write names the version that it read.
//! Reclaiming is different: one binder may be about to scrub a volume that the other has just given to a
//! claim. So recycling and deleting stop at the first sign, until an operator says that the other binder is
//! gone.
//!
//! The sign is a write that only binders make: a change of `status.phase`, or bind-completed on a claim.
//! claimRef and volumeName are not a sign, because users, the scheduler and provisioners set them too.

use std::sync::Arc;

use bindery_core::{Claim, Regarding, Text, Volume};
use bindery_store::{Author, Changed, ObjectChange, Observed, is_newer};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;

use crate::operations::OperationMap;

/// A write that another binder made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignWrite {
    /// The object.
    pub regarding: Regarding,
    /// The name that the writer gave.
    pub author: Text,
    /// What it wrote, such as `status.phase: Bound`.
    pub what: String,
}

/// Checks the changes of volumes and claims for writes of other binders.
pub struct ForeignWriters {
    operations: Arc<OperationMap>,
    writes: Counter,
    last: watch::Sender<Option<ForeignWrite>>,
}

impl ForeignWriters {
    pub(crate) fn new(operations: Arc<OperationMap>) -> Self {
        Self { operations, writes: Counter::default(), last: watch::Sender::new(None) }
    }

    /// Number of writes of other binders that were seen.
    pub fn writes(&self) -> u64 {
        self.writes.get()
    }

    /// The last write of another binder; receivers are notified of each.
    pub fn last(&self) -> watch::Receiver<Option<ForeignWrite>> {
        self.last.subscribe()
    }

    /// Whether recycling and deleting are stopped.
    pub fn holds(&self) -> bool {
        self.operations.holds()
    }

    /// Stops recycling and deleting; an operation that runs ends before its next step.
    pub fn hold(&self) {
        self.operations.hold();
    }

    /// Ends the stop of recycling and deleting, and queues the objects that were held back. Does nothing if
    /// another binder has written since [`ForeignWriters::writes`] was that number. Returns whether the stop
    /// ended.
    pub fn release(&self, writes: u64) -> bool {
        let mut is_released = false;
        self.last.send_if_modified(|_| {
            is_released = self.writes.get() == writes;
            if is_released {
                self.operations.release();
            }
            false
        });
        is_released
    }

    /// Checks a change that a watch has delivered. Echoes of own writes, which are nearly all changes on the
    /// leader, are ignored.
    pub(crate) fn look_at(&self, object: &ObjectChange) {
        match object {
            ObjectChange::Volume(_, changed) if !changed.is_echo => self.look_at_volume(changed),
            ObjectChange::Claim(_, changed) if !changed.is_echo => self.look_at_claim(changed),
            ObjectChange::Volume(..) | ObjectChange::Claim(..) => {}
        }
    }

    fn look_at_volume(&self, changed: &Changed<Volume>) {
        let (Some((before, after)), Some(authors)) = (readable(changed), &changed.authors) else { return };
        let is_known = before.uid == after.uid && !is_newer(&before.version, &after.version);
        if is_known && before.phase != after.phase {
            let what = || format!("status.phase: {}", after.phase.name());
            self.judge(authors.read().phase, || Regarding::Volume(after.target()), what);
        }
    }

    fn look_at_claim(&self, changed: &Changed<Claim>) {
        let (Some((before, after)), Some(authors)) = (readable(changed), &changed.authors) else { return };
        // An object with an older version shows that etcd was restored. Its author wrote long ago, and may be
        // a binder that the operator has switched off since.
        if before.uid != after.uid || is_newer(&before.version, &after.version) {
            return;
        }
        let regarding = || Regarding::Claim(after.target());
        if before.status.phase != after.status.phase {
            self.judge(authors.read().phase, regarding, || {
                format!("status.phase: {}", after.status.phase.name())
            });
        }
        if !before.annotations.bind_completed && after.annotations.bind_completed {
            self.judge(authors.read().bind_completed, regarding, || {
                "the mark of a completed bind".to_owned()
            });
        }
    }

    fn judge(&self, author: Author, regarding: impl FnOnce() -> Regarding, what: impl FnOnce() -> String) {
        let Author::Other(author) = author else { return };
        let write = ForeignWrite { regarding: regarding(), author, what: what() };
        self.last.send_modify(|last| {
            self.writes.inc();
            // The stop comes first, before the operator is told.
            self.hold();
            *last = Some(write);
        });
    }
}

fn readable<T>(changed: &Changed<T>) -> Option<(&Arc<T>, &Arc<T>)> {
    match (changed.before.as_ref()?, changed.after.as_ref()?) {
        (Observed::Readable(before), Observed::Readable(after)) => Some((before, after)),
        _ => None,
    }
}
