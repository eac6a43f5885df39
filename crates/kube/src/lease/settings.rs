//! A Lease, and the times that follow from its duration.

use std::time::Duration;

/// The holder renews, and followers read, once in each of these parts of the Lease's duration. client-go
/// does so every 2 s of 15.
const RETRY_PARTS: u32 = 8;
/// After this many parts without renewal a holder stands down. client-go waits for 10 s of 15.
const DEADLINE_PARTS: u32 = 5;
/// Unanswered attempts that fit between a renewal and the time when the holder stands down.
/// kube-controller-manager's client for the Lease has a timeout of half that time, which leaves two.
const ATTEMPTS: u32 = 3;
/// Divides the duration into the time that a holder has after standing down to finish its writes. Together
/// with [`DEADLINE_PARTS`] of [`RETRY_PARTS`] that is less than the duration.
const GRACE_PARTS: u32 = 3;

/// A Lease, and the replica that competes for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Name of this replica. Never empty: an empty holder means that the Lease is free.
    pub identity: String,
    /// Time without a renewal after which another replica takes the Lease; whole seconds.
    pub duration: Duration,
}

impl LeaseSettings {
    /// Time that a holder has to finish its writes after standing down, before another replica may take the
    /// Lease.
    pub fn grace(&self) -> Duration {
        self.duration / GRACE_PARTS
    }

    pub(super) fn part(&self) -> Duration {
        self.duration / RETRY_PARTS
    }

    /// Time since the last renewal after which a holder stands down.
    pub(super) fn deadline(&self) -> Duration {
        self.part() * DEADLINE_PARTS
    }

    /// Longest time for one attempt. The first attempt begins one part after the last renewal.
    pub(super) fn attempt_max(&self) -> Duration {
        (self.deadline() - self.part()) / ATTEMPTS
    }
}
