//! What reads and writes of the Lease have shown.

use std::time::Duration;

use bindery_core::Version;
use bindery_store::Kind;
use tokio::time::Instant;

/// How long the list of a start is believed to be current. A leader believes its watches for three times as
/// long.
const BELIEVED: Duration = Duration::from_secs(30);

/// The holder of the Lease, as a read or a write of it has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseHolder {
    /// The Lease is free.
    Absent,
    /// This replica holds it, and took it in the version that was seen before.
    This,
    /// Another replica holds it, or has let it expire.
    Other,
}

/// The Lease as it was last read or written.
#[derive(Debug, Default)]
pub(super) struct Lease {
    pub(super) version: Option<Version>,
    /// Since when no other replica can have held the Lease.
    free: Option<Free>,
}

/// The first answer that showed one version of the Lease, without a holder.
#[derive(Debug)]
struct Free {
    version: Version,
    at: Instant,
    /// How many lists of each kind had begun.
    begun: [u64; Kind::ALL.len()],
}

impl Lease {
    /// Takes an answer. `begun` is how many lists of each kind have begun. Returns the version before.
    pub(super) fn reached(
        &mut self,
        version: &Version,
        holder: LeaseHolder,
        begun: [u64; Kind::ALL.len()],
    ) -> Option<Version> {
        match holder {
            LeaseHolder::Absent if self.free.as_ref().is_some_and(|free| free.version == *version) => {}
            LeaseHolder::Absent => {
                self.free = Some(Free { version: version.clone(), at: Instant::now(), begun });
            }
            LeaseHolder::This => {}
            LeaseHolder::Other => self.free = None,
        }
        self.version.replace(version.clone())
    }

    /// Whether that list of the kind has everything that other replicas wrote as leaders: it began since no
    /// other replica can have held the Lease, and not long ago.
    pub(super) fn is_after_leaders(&self, kind: Kind, list: u64) -> bool {
        let is_after = |free: &Free| list > free.begun[kind as usize] && free.at.elapsed() <= BELIEVED;
        self.free.as_ref().is_some_and(is_after)
    }
}
