//! What the binder itself does: its writes, its reservations, its environment.

use std::sync::Arc;

use bindery_core::{Claim, ClaimKey, Volume};

use super::{HeldBy, Store};
use crate::change::{Change, Topic};

impl Store {
    /// A write returned this volume: it is laid over the watch cache until the watch has caught up.
    ///
    /// Not taken ([`Change::fresh`] is `false`) where the watch does not know the volume (it is not created
    /// there yet, or is gone again), knows another one of that name, or knows the same or a newer version.
    pub fn assume_volume(&self, mut volume: Arc<Volume>) -> Change {
        self.share_volume(&mut volume);
        self.state_mut().assume_volume(volume)
    }

    /// A write returned this claim; see [`Store::assume_volume`].
    pub fn assume_claim(&self, mut claim: Arc<Claim>) -> Change {
        self.share_claim(&mut claim);
        self.state_mut().assume_claim(claim)
    }

    /// Picks a volume for a claim, before the decision is carried out: until [`Store::unreserve`], other
    /// claims see the volume as [`bindery_core::Slot::InFlight`]. May be repeated for the same claim.
    ///
    /// Wakes nobody: it only takes away, and whoever was told that the volume is free and picks it too is
    /// refused here.
    ///
    /// # Errors
    ///
    /// The volume is picked for another claim; decide again.
    pub fn reserve(&self, volume: &str, claim: &ClaimKey) -> Result<(), HeldBy> {
        self.state_mut().reserve(volume, claim)
    }

    /// Ends a reservation, whatever became of the decision. Does nothing where the claim holds none.
    pub fn unreserve(&self, volume: &str, claim: &ClaimKey) -> Change {
        self.state_mut().unreserve(volume, claim)
    }

    /// Facts of the [`crate::Environment`] have changed.
    pub fn note(&self, topics: Vec<Topic>) -> Change {
        self.state_mut().note(topics)
    }
}
