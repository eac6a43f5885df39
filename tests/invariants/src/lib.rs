//! What must hold of the volumes and claims of a cluster, whichever binder runs: a checker that reads
//! Kubernetes' JSON by itself and shares no code with the binder that it checks.
//!
//! A [`Snapshot`] is the volumes, claims and classes of one moment (lists of the same resourceVersion).
//! [`Snapshot::harms`] are violations that no moment may show: data is or may be lost.
//! [`Snapshot::violations`] are these and whatever a world at rest may not show: work that was left undone.
//!
//! The rules are those of upstream's controller of Kubernetes 1.36
//! (`pkg/controller/volume/persistentvolume`): the tables of `syncVolume` and `syncClaim`,
//! `findMatchingVolume`, `checkVolumeSatisfyClaim`, and the finalizers of KEP-2644. They assume what holds of
//! the clusters that tests make: volumes and claims are not resized after they were bound, no volume is
//! migrated to CSI, and the API server adds the protection finalizers.

mod fit;
mod object;
mod quantity;
mod rest;
mod snapshot;
mod violation;

#[cfg(test)]
mod tests;

pub use snapshot::Snapshot;
pub use violation::{Rule, Violation};
