//! One object: as the watch delivered it last, and an own write that the watch has not delivered yet.

use std::sync::Arc;

use bindery_core::{Lookup, Source, Version};

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
    /// Result of an own write. Always newer than what was observed, else it is dropped.
    assumed: Option<Arc<T>>,
}

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

    /// Takes what the watch delivers. Objects are compared whole: a relist delivers again what is known, and
    /// an own write comes back as its own echo, and neither changes an answer.
    pub(crate) fn observe(&mut self, incoming: Observed<T>) -> Moved {
        let before = self.overlay().cloned().map_err(Clone::clone);
        let incoming = boxed(incoming);
        let cache = self.observed != incoming;
        self.observed = incoming;
        if self.assumed.as_ref().is_some_and(|a| !version::is_newer(a.version(), self.cache_version())) {
            self.assumed = None;
        }
        Moved { cache, overlay: before.as_ref() != self.overlay() }
    }

    /// Lays the result of an own write over the object. Ignored unless it is newer than what the watch has
    /// delivered and than an earlier assumption: of two own writes that return out of order the newer stays.
    pub(crate) fn assume(&mut self, written: Arc<T>) -> bool {
        let newer = version::is_newer(written.version(), self.overlay_version());
        if newer {
            self.assumed = Some(written);
        }
        newer
    }

    /// The object as the overlay has it.
    pub(crate) fn overlay(&self) -> Result<&Arc<T>, &Unreadable> {
        self.assumed.as_ref().map_or_else(|| self.cache(), Ok)
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
