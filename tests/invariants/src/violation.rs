//! Rules, and how an object breaks one.

use std::fmt;

/// A rule that an object breaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The object: `volume NAME` or `claim NAMESPACE/NAME`.
    pub object: String,
    /// How the object breaks it.
    pub why: String,
}

/// A rule. Breaking one of the first seven does lasting harm, so they hold at any moment; the others hold
/// in a cluster at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// No two bound claims have the same volume.
    OneClaim,
    /// A bound claim has a volume that exists.
    VolumeKept,
    /// A bound claim's volume is reserved for this claim, by UID.
    PointsBack,
    /// The binder's choice fits the request.
    Fits,
    /// The volume of a complete pair is neither released nor failed.
    NotReclaimed,
    /// Mode steer reserves no second volume for a claim: upstream releases one of them.
    SteeredOnce,
    /// Volumes and claims that are not being deleted have their protection finalizers.
    Protected,
    /// A claim is Bound or Lost if and only if it has `bind-completed`.
    Marked,
    /// A volume's phase matches its claimRef.
    VolumePhase,
    /// A claim's phase matches its volume.
    ClaimPhase,
    /// The status of a bound claim has the capacity and the access modes of its volume.
    ClaimStatus,
    /// A claimRef names its claim in full, and no claimRef is for a claim that has another volume.
    Reservation,
    /// A pair that the binder or a user began is complete.
    PairCompleted,
    /// No claim waits while a free volume fits it.
    NoneWaits,
    /// Exactly the volumes that the binder will delete have its finalizer.
    Finalizer,
    /// The deletion of a volume without a claim ends.
    DeletionEnds,
    /// No volume is reserved by mode steer any more, and none says so that is bound.
    SteeringEnds,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({:?})", self.object, self.why, self.rule)
    }
}
