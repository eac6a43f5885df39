//! The watch for other binders: upstream's loop that was switched back on, above all.
//!
//! Two binders on one cluster bind each claim once all the same, because every write names the version that
//! it read (G5 of the design). Reclaiming is another matter: what one of them takes for abandoned, the other
//! may just have given away. So recycling and deleting stop at the first sign, until an operator says that
//! the other one is gone.
//!
//! The sign is a write that only binders make: a change of `status.phase`, or bind-completed on a claim.
//! Pointers are no sign: users, the scheduler and provisioners set them too.

use std::sync::Arc;

use bindery_core::{Claim, Lookup, Regarding, Source, Text, Version, Volume};
use bindery_store::{Observed, Store, is_newer};
use tokio::sync::watch;

use crate::metrics::Counter;
use crate::operations::OperationMap;

/// Who wrote a field last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Author {
    /// A replica of Bindery.
    Bindery,
    /// Somebody else, by the name that they gave.
    Other(Text),
    /// The object does not say.
    Unknown,
}

/// Who wrote the fields of an object last that only binders write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authors {
    /// Of `status.phase`.
    pub phase: Author,
    /// Of bind-completed.
    pub bind_completed: Author,
}

/// A write that another binder made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignWrite {
    /// What it wrote to.
    pub regarding: Regarding,
    /// Who wrote it.
    pub author: Text,
    /// What it wrote, such as `status.phase: Bound`.
    pub what: String,
}

/// Keeps watch for other binders.
pub struct Vigil {
    store: Arc<Store>,
    operations: Arc<OperationMap>,
    writes: Counter,
    last: watch::Sender<Option<ForeignWrite>>,
}

impl Vigil {
    pub(crate) fn new(store: Arc<Store>, operations: Arc<OperationMap>) -> Self {
        Self { store, operations, writes: Counter::default(), last: watch::Sender::new(None) }
    }

    /// How many writes of other binders were seen.
    pub fn writes(&self) -> u64 {
        self.writes.get()
    }

    /// The last write of another binder, as they come.
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

    /// Lets recycling and deleting go on, with what was held back first, unless another binder has written
    /// since there were so many [`Vigil::writes`]. Says whether it did.
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

    /// Looks at a volume that a watch delivers, before the store takes it. `authors` is asked only where it
    /// matters.
    pub fn volume(&self, name: &str, observed: &Observed<Volume>, authors: impl FnOnce() -> Authors) {
        let Observed::Readable(after) = observed else { return };
        let Lookup::Found(before) = self.store.volume(Source::Cache, name) else { return };
        let is_told = before.uid == after.uid && before.phase != after.phase;
        if !is_told || went_back(&before.version, &after.version) || self.is_own_volume(after) {
            return;
        }
        let what = || format!("status.phase: {}", after.phase.name());
        self.judge(authors().phase, || Regarding::Volume(after.target()), what);
    }

    /// Looks at a claim; see [`Vigil::volume`].
    pub fn claim(&self, observed: &Observed<Claim>, authors: impl FnOnce() -> Authors) {
        let Observed::Readable(after) = observed else { return };
        let Lookup::Found(before) = self.store.claim(Source::Cache, &after.key) else { return };
        let phase = before.status.phase != after.status.phase;
        let bound = !before.annotations.bind_completed && after.annotations.bind_completed;
        let is_told = before.uid == after.uid && (phase || bound);
        if !is_told || went_back(&before.version, &after.version) || self.is_own_claim(after) {
            return;
        }
        let authors = authors();
        let regarding = || Regarding::Claim(after.target());
        if phase {
            self.judge(authors.phase, regarding, || format!("status.phase: {}", after.status.phase.name()));
        }
        if bound {
            self.judge(authors.bind_completed, regarding, || "the mark of a completed bind".to_owned());
        }
    }

    /// Whether this is what a write of this very replica returned, as nearly all is where it leads.
    fn is_own_volume(&self, after: &Volume) -> bool {
        let overlay = self.store.volume(Source::Overlay, &after.name);
        matches!(overlay, Lookup::Found(own) if own.version == after.version)
    }

    fn is_own_claim(&self, after: &Claim) -> bool {
        let overlay = self.store.claim(Source::Overlay, &after.key);
        matches!(overlay, Lookup::Found(own) if own.version == after.version)
    }

    fn judge(&self, author: Author, regarding: impl FnOnce() -> Regarding, what: impl FnOnce() -> String) {
        let Author::Other(author) = author else { return };
        let write = ForeignWrite { regarding: regarding(), author, what: what() };
        self.last.send_modify(|last| {
            self.writes.count();
            // First of all, and not only when the operator has been told.
            self.hold();
            *last = Some(write);
        });
    }
}

/// Whether an object is as it was before: etcd was restored. Its last author wrote long ago, and may be a
/// binder that the operator has switched off since.
fn went_back(before: &Version, after: &Version) -> bool {
    is_newer(before, after)
}
