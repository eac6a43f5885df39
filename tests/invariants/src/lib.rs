//! Checks the invariants of the volumes and claims of any cluster, whichever binder runs. The checker reads
//! Kubernetes' JSON and shares no code with the binder that it checks.
//!
//! A [`Snapshot`] has the volumes, claims and classes of one moment (lists of the same resourceVersion).
//! [`Snapshot::harms`] are violations that must not occur at any moment: data is or may be lost.
//! [`Snapshot::violations`] also has what must not occur in a cluster at rest: unfinished work.
//!
//! The rules are those of upstream's controller in Kubernetes 1.36
//! (`pkg/controller/volume/persistentvolume`): the tables of `syncVolume` and `syncClaim`,
//! `findMatchingVolume`, `checkVolumeSatisfyClaim`, and the finalizers of KEP-2644. They assume clusters as
//! tests make them: volumes and claims are not resized after they were bound, no volume is migrated to CSI,
//! and the API server adds the protection finalizers.

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
