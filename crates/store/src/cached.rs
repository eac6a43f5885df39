//! One object: as the watch delivered it last, with an own write that the watch has not delivered yet.

use std::sync::Arc;

use bindery_core::{Lookup, Source, Version};

use crate::change::Changed;
use crate::delivery::{Identified, Observed, Unreadable};
use crate::version;

/// An object that the watch knows, with the assumption laid over it.
///
/// Follows upstream's assume cache of v1.38 (kubernetes #140691). An object that the watch does not know has
/// no such entry, so an own write that returns late cannot bring a deleted object back (kubernetes #124224).
#[derive(Debug)]
pub(crate) struct Cached<T> {
    observed: Observed<T>,
    /// Result of an own write, dropped once it is not newer than what was observed. Boxed, because it is rare
    /// and there are hundreds of thousands of these.
    assumed: Option<Box<Assumed<T>>>,
}

/// Result of an own write.
#[derive(Debug)]
struct Assumed<T> {
    object: Arc<T>,
    /// The last list of the kind that had begun when the write was answered. Later lists show the write, or
    /// that etcd was restored to a state before it.
    list: ListNumber,
}

/// Counts the lists of one kind that have begun; 0 is before the first.
pub(crate) type ListNumber = u64;

impl<T: Identified + Clone + Eq> Cached<T> {
    pub(crate) fn new(observed: Observed<T>) -> Self {
        Self { observed, assumed: None }
    }

    /// Whether the watch has already delivered something newer than `incoming`. Equal versions pass, and so
    /// do versions that cannot be compared: the newest delivery wins.
    pub(crate) fn outdates(&self, incoming: &Observed<T>) -> bool {
        version::is_newer(self.observed.version(), incoming.version())
    }

    /// What the watch has delivered last, if it equals this.
    pub(crate) fn equal_to(&self, incoming: &Observed<T>) -> Option<&Observed<T>> {
        Some(&self.observed).filter(|observed| *observed == incoming)
    }

    /// The known and the listed version of an object that is older in a list than the watch has delivered it.
    pub(crate) fn regression(&self, listed: &Observed<T>) -> Option<(Version, Version)> {
        let went_back = self.observed.uid() == listed.uid() && self.outdates(listed);
        went_back.then(|| (self.observed.version().clone(), listed.version().clone()))
    }

    /// Takes what the watch delivers, or the list of that number. Objects are compared whole: a relist
    /// delivers known objects again, and an own write comes back as its own echo; neither changes an answer.
    ///
    /// A list is believed over an own write that was answered before it began, whatever their versions: after
    /// a restore of etcd the list's version is the lower one.
    pub(crate) fn observe(&mut self, incoming: Observed<T>, list: Option<ListNumber>) -> Changed<T> {
        let overlay = self.overlay().cloned().map_err(Clone::clone);
        let is_echo =
            self.assumed.as_ref().is_some_and(|assumed| assumed.object.version() == incoming.version());
        let before = std::mem::replace(&mut self.observed, incoming);
        if let Some(assumed) = &self.assumed
            && (list.is_some_and(|list| assumed.list < list)
                || assumed.object.uid() != self.observed.uid()
                || !version::is_newer(assumed.object.version(), self.observed.version()))
        {
            self.assumed = None;
        }
        let cache = before != self.observed;
        let overlay = overlay.as_ref() != self.overlay();
        Changed { cache, overlay, is_echo, ..Changed::new(Some(before), Some(self.observed.clone())) }
    }

    /// Lays the result of an own write over the object; `list` is the last list that has begun. Ignored
    /// unless it is the same object, and newer than what the watch has delivered and than an earlier
    /// assumption: of two own writes that return out of order the newer stays.
    pub(crate) fn assume(&mut self, written: Arc<T>, list: ListNumber) -> Changed<T> {
        let known = self.assumed.as_ref().map_or(self.observed.version(), |assumed| assumed.object.version());
        let is_taken = written.uid() == self.observed.uid() && version::is_newer(written.version(), known);
        if is_taken {
            self.assumed = Some(Box::new(Assumed { object: written, list }));
        }
        let cache = || Some(self.observed.clone());
        Changed { cache: false, overlay: is_taken, ..Changed::new(cache(), cache()) }
    }

    /// The change that takes the object away.
    pub(crate) fn gone(self) -> Changed<T> {
        Changed::new(Some(self.observed), None)
    }

    /// The object as the overlay has it.
    pub(crate) fn overlay(&self) -> Result<&Arc<T>, &Unreadable> {
        self.assumed.as_ref().map_or_else(|| self.cache(), |assumed| Ok(&assumed.object))
    }

    /// The object of that source, as the store answers it. The store reads nothing live.
    pub(crate) fn lookup(&self, source: Source) -> Lookup<Arc<T>> {
        let view = if source == Source::Overlay { self.overlay() } else { self.cache() };
        match view {
            Ok(object) => Lookup::Found(object.clone()),
            Err(unreadable) => Lookup::Unreadable(unreadable.why.clone()),
        }
    }

    fn cache(&self) -> Result<&Arc<T>, &Unreadable> {
        match &self.observed {
            Observed::Readable(object) => Ok(object),
            Observed::Unreadable(unreadable) => Err(unreadable),
        }
    }
}
