//! What can be wrong.

use std::fmt;

/// A rule that an object breaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The object: `volume NAME` or `claim NAMESPACE/NAME`.
    pub object: String,
    /// What of the object breaks it.
    pub why: String,
}

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// No two bound claims have one volume.
    OneClaim,
    /// A bound claim has a volume that exists.
    VolumeKept,
    /// A bound claim's volume is reserved for this claim, by UID.
    PointsBack,
    /// What the binder chose fits what was asked for.
    Fits,
    /// The volume of a complete pair is neither released nor failed.
    NotReclaimed,
    /// Volumes and claims that are not being deleted have their protection finalizers.
    Protected,
    /// A claim is bound exactly where it is marked `bind-completed`, or lost.
    Marked,
    /// A volume's phase is what its reservation says.
    VolumePhase,
    /// A claim's phase is what its volume says.
    ClaimPhase,
    /// A bound claim tells the capacity and the access modes of its volume.
    ClaimStatus,
    /// A reservation names its claim in full, and none is for a claim that has another volume.
    Reservation,
    /// A pair that was begun, by the binder or by the user, is completed.
    PairCompleted,
    /// No claim waits while a volume is free that fits it.
    NoneWaits,
    /// The binder's finalizer is on the volumes that it will delete, and on no others.
    Finalizer,
    /// A volume that is being deleted and has no claim goes.
    DeletionEnds,
}

impl Rule {
    /// Whether to break it does harm that nothing mends, at any moment; the others hold of a world at rest.
    pub fn is_of_any_moment(self) -> bool {
        match self {
            Self::OneClaim
            | Self::VolumeKept
            | Self::PointsBack
            | Self::Fits
            | Self::NotReclaimed
            | Self::Protected => true,
            Self::Marked
            | Self::VolumePhase
            | Self::ClaimPhase
            | Self::ClaimStatus
            | Self::Reservation
            | Self::PairCompleted
            | Self::NoneWaits
            | Self::Finalizer
            | Self::DeletionEnds => false,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({:?})", self.object, self.why, self.rule)
    }
}
