//! The network of one replica, and the versions that the replica was told.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::script::KINDS;

/// The network of one replica.
pub(crate) struct Link {
    /// Nothing passes until then.
    pub(crate) isolated_until: Mutex<Option<Instant>>,
    pub(crate) kinds: [KindLink; KINDS.len()],
    /// Whether a restore has taken back a version that it had received, and no list since began at a version
    /// below the newest that it had received.
    misses_restore: AtomicBool,
}

/// What happens to a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchFault {
    /// The API server has forgotten the version from which it begins (410).
    Expired,
    /// It is opened and says nothing.
    Silent,
}

/// The watches of one kind.
pub(crate) struct KindLink {
    /// Frames wait for this number of points.
    pub(crate) held_until: Mutex<usize>,
    /// Raised when the open watches end.
    pub(crate) cuts: watch::Sender<usize>,
    /// What happens to the next watch.
    pub(crate) fault: Mutex<Option<WatchFault>>,
    /// The newest version that the replica was told, by a frame or an answer.
    newest: AtomicU64,
}

impl Link {
    pub(crate) fn new() -> Self {
        let kind = |_| KindLink {
            held_until: Mutex::default(),
            cuts: watch::Sender::new(0),
            fault: Mutex::default(),
            newest: AtomicU64::default(),
        };
        let (isolated_until, misses_restore) = Default::default();
        Self { isolated_until, kinds: std::array::from_fn(kind), misses_restore }
    }

    /// etcd was restored to a revision.
    pub(crate) fn restored(&self, revision: u64) {
        let knows_more = |kind: &KindLink| kind.newest.load(Ordering::Relaxed) > revision;
        self.misses_restore.fetch_or(self.kinds.iter().any(knows_more), Ordering::Relaxed);
        self.kinds.iter().for_each(KindLink::cut);
    }

    /// Notes the versions of a frame that the replica receives.
    pub(crate) fn received(&self, kind: usize, frame: &[u8]) {
        self.kinds[kind].newest.fetch_max(newest_version(frame), Ordering::Relaxed);
    }

    /// Notes a version that the answer to a request has told the replica, at a revision of etcd.
    pub(crate) fn answered(&self, kind: usize, version: u64, revision: u64) {
        self.kinds[kind].newest.fetch_max(version, Ordering::Relaxed);
        // A restore has taken it back meanwhile.
        self.misses_restore.fetch_or(version > revision, Ordering::Relaxed);
    }

    /// Notes that the replica lists a kind, so that it learns the current revision.
    pub(crate) fn listed(&self, kind: usize, revision: u64) {
        if revision < self.kinds[kind].newest.load(Ordering::Relaxed) {
            // It lists all kinds again.
            self.forget();
        }
    }

    /// The replica knows no version any more.
    pub(crate) fn forget(&self) {
        self.misses_restore.store(false, Ordering::Relaxed);
        self.kinds.iter().for_each(|kind| kind.newest.store(0, Ordering::Relaxed));
    }

    /// Whether the replica has not noticed a restore that took back a version which it had received.
    pub(crate) fn misses_restore(&self) -> bool {
        self.misses_restore.load(Ordering::Relaxed)
    }
}

impl KindLink {
    /// Ends the watches, and lets the next one fail.
    pub(crate) fn fail(&self, fault: WatchFault) {
        *self.fault.lock() = Some(fault);
        self.cut();
    }

    /// Ends the watches.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

/// The newest version in a frame of objects as JSON; 0 if it has none.
fn newest_version(frame: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(frame);
    let versions = text.split("\"resourceVersion\":\"").skip(1);
    versions.filter_map(|rest| rest.split('"').next()?.parse().ok()).max().unwrap_or_default()
}
