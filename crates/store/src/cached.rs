//! One object: as the watch delivered it last, and an own write that the watch has not delivered yet.

use std::sync::Arc;

use bindery_core::{Lookup, Source, Uid, Version};

use crate::observed::{Object, Observed, Unreadable};
use crate::version;

/// An object that the watch knows, with the assumption laid over it.
///
/// Follows upstream's assume cache of v1.38 (kubernetes #140691, reference section 3.2). There is none of
/// these for an object that the watch does not know, so an own write that returns late cannot bring a deleted
/// object back (kubernetes #124224).
#[derive(Debug)]
pub(crate) struct Cached<T> {
    /// Boxed, because it is rare and there are hundreds of thousands of these.
    observed: Result<Arc<T>, Box<Unreadable>>,
    /// Result of an own write, dropped once it is not newer than what was observed. Boxed for the same
    /// reason.
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

/// What an observation changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The object of the watch cache.
    pub(crate) cache: bool,
    /// The object of the overlay.
    pub(crate) overlay: bool,
}

impl<T: Object + Eq> Cached<T> {
    pub(crate) fn new(observed: Observed<T>) -> Self {
        Self { observed: boxed(observed), assumed: None }
    }

    /// Whether the watch has already delivered something newer than `incoming`. Equal versions pass, and so
    /// do versions that cannot be compared: the newest delivery wins.
    pub(crate) fn outdates(&self, incoming: &Observed<T>) -> bool {
        version::is_newer(self.cache_version(), incoming.version())
    }

    /// The known and the listed version of an object that is older in a list than the watch has delivered it.
    pub(crate) fn regression(&self, listed: &Observed<T>) -> Option<(Version, Version)> {
        let went_back = self.cache_uid() == listed.uid() && self.outdates(listed);
        went_back.then(|| (self.cache_version().clone(), listed.version().clone()))
    }

    /// Takes what the watch delivers, or the list of that number. Objects are compared whole: a relist
    /// delivers again what is known, and an own write comes back as its own echo, and neither changes an
    /// answer.
    ///
    /// A list is believed over an own write that was answered before it began, whatever their versions: after
    /// a restore of etcd the list's version is the lower one.
    pub(crate) fn observe(&mut self, incoming: Observed<T>, list: Option<ListNumber>) -> Moved {
        let before = self.overlay().cloned().map_err(Clone::clone);
        let incoming = boxed(incoming);
        let cache = self.observed != incoming;
        self.observed = incoming;
        if let Some(assumed) = &self.assumed
            && (list.is_some_and(|list| assumed.list < list)
                || assumed.object.uid() != self.cache_uid()
                || !version::is_newer(assumed.object.version(), self.cache_version()))
        {
            self.assumed = None;
        }
        Moved { cache, overlay: before.as_ref() != self.overlay() }
    }

    /// Lays the result of an own write over the object; `list` is the last list that has begun. Ignored
    /// unless it is the same object, and newer than what the watch has delivered and than an earlier
    /// assumption: of two own writes that return out of order the newer stays.
    pub(crate) fn assume(&mut self, written: Arc<T>, list: ListNumber) -> bool {
        let is_taken =
            written.uid() == self.cache_uid() && version::is_newer(written.version(), self.overlay_version());
        if is_taken {
            self.assumed = Some(Box::new(Assumed { object: written, list }));
        }
        is_taken
    }

    /// The object as the overlay has it.
    pub(crate) fn overlay(&self) -> Result<&Arc<T>, &Unreadable> {
        self.assumed.as_ref().map_or_else(|| self.cache(), |assumed| Ok(&assumed.object))
    }

    /// The object as the watch delivered it.
    pub(crate) fn cache(&self) -> Result<&Arc<T>, &Unreadable> {
        self.observed.as_ref().map_err(|unreadable| &**unreadable)
    }

    /// The object of that source, as the store answers it. The store reads nothing live.
    pub(crate) fn lookup(&self, source: Source) -> Lookup<Arc<T>> {
        let view = if source == Source::Overlay { self.overlay() } else { self.cache() };
        match view {
            Ok(object) => Lookup::Found(object.clone()),
            Err(unreadable) => Lookup::Unreadable(unreadable.why.clone()),
        }
    }

    fn cache_uid(&self) -> &Uid {
        self.cache().map_or_else(|unreadable| &unreadable.uid, |object| object.uid())
    }

    fn cache_version(&self) -> &Version {
        self.cache().map_or_else(|unreadable| &unreadable.version, |object| object.version())
    }

    fn overlay_version(&self) -> &Version {
        self.overlay().map_or_else(|unreadable| &unreadable.version, |object| object.version())
    }
}

fn boxed<T>(observed: Observed<T>) -> Result<Arc<T>, Box<Unreadable>> {
    match observed {
        Observed::Readable(object) => Ok(object),
        Observed::Unreadable(unreadable) => Err(Box::new(unreadable)),
    }
}
