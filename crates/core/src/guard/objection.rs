//! Why a decision is not carried out.

use serde::{Deserialize, Serialize};

use crate::Key;

/// Why a decision is not carried out (yet).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Objection {
    /// A live read of this object is needed first; then the same decision is checked again, with the answer
    /// as [`super::View::claim_proof`] or [`super::View::volume_proof`]. The caller retries a failing
    /// read once and passes the second failure on.
    #[error("{0} has to be read from the API server first")]
    Prove(Key),
    /// A policy has to be asked first; then the same decision is checked again.
    #[error("a policy has to be asked first")]
    Judge,
    /// A live read of a volume contradicts the cache that the decision rests on: the cache is stale, and the
    /// engine is not at fault. The caller lists the volumes anew, and then decides the object again.
    #[error("{object} {found} on the API server, unlike in the cache; it is decided again after a new list")]
    Contradicted {
        /// The volume.
        object: Key,
        /// What the live read found.
        found: &'static str,
    },
    /// An object changed after the engine read it: decide again. The engine is not at fault.
    #[error("{object} changed while it was decided: {what}; it is decided again")]
    Stale {
        /// The object that changed.
        object: Key,
        /// How.
        what: &'static str,
    },
    /// A live read failed, so its proof is missing: a fault of the cluster, not of the engine. Decide again
    /// after a while.
    #[error("\"{object}\": {why}")]
    Unproven {
        /// The object that needs the proof.
        object: Key,
        /// Which read failed, and how.
        why: String,
    },
    /// The decision breaks a guarantee. It is dropped, counted, journaled and shown on the object.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// A decision, or one step of it, that breaks a guarantee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{object}: {sentence}; {} ({:?} {})", breach.remedy(), breach.guarantee(), breach.name())]
pub struct Refusal {
    /// What is broken.
    pub breach: Breach,
    /// The object that the step acts on; the subject of the request where it is the decision as a whole.
    pub object: Key,
    /// Index of the step; `None` where it is the decision as a whole.
    pub step: Option<u32>,
    /// What is wrong: the field, the value found and the value wanted.
    pub sentence: String,
}

/// The guarantees G1 to G11 and S1 to S4, as in the table of ARCHITECTURE.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Guarantee {
    /// No action breaks a complete pair, overwrites a UID, or changes a volumeName.
    G1,
    /// Identity is the UID.
    G2,
    /// A bind is legal.
    G3,
    /// No release, recycle or delete without a live proof.
    G4,
    /// A write names the version of an object really read.
    G5,
    /// Nothing before all initial lists are complete.
    G6,
    /// What cannot be parsed is unreadable, never absent.
    G7,
    /// A decision has a bounded size.
    G8,
    /// Every other action meets its preconditions.
    G9,
    /// A free volume is newly given to a claim only where every policy that applies allows it.
    G10,
    /// A reclaimer only makes a volume safer than its reclaim policy does, unless its document allows more.
    G11,
    /// Mode steer writes choices, fences, reservations by name and touches of steered claims, and removes
    /// them.
    S1,
    /// Mode steer removes only its own reservations, which upstream has not carried out.
    S2,
    /// Mode steer reserves only a free volume that its claim has chosen and may have, and no second one.
    S3,
    /// S4.
    S4,
}

macro_rules! breaches {
    ($($(#[$doc:meta])* $breach:ident = $guarantee:ident $name:literal, $remedy:literal;)*) => {
        /// What a refused decision breaks, one variant for each clause of a guarantee.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Breach { $($(#[$doc])* $breach,)* }

        impl Breach {
            /// Every breach, in the order of the guarantees.
            pub const ALL: &'static [Self] = &[$(Self::$breach),*];

            /// The guarantee that is broken.
            pub fn guarantee(self) -> Guarantee {
                match self { $(Self::$breach => Guarantee::$guarantee,)* }
            }

            /// A short name, with which the text of a refusal ends.
            pub fn name(self) -> &'static str {
                match self { $(Self::$breach => $name,)* }
            }

            /// What the user or the author of the engine can do about it.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$breach => $remedy,)* }
            }
        }
    };
}

breaches! {
    /// The volume's claimRef carries the UID of another claim.
    ClaimRefTaken = G1 "claim-ref-taken", "choose another volume, or release this one first";
    /// The action would break a complete pair.
    PairBroken = G1 "pair-broken", "delete the claim if its volume is to be released";
    /// The claim's volumeName names another volume.
    VolumeNameSet = G1 "volume-name-set",
        "a volumeName that is set stays; create a new claim for another volume";
    /// The volume's claimRef has no UID and names another claim.
    ReservedForOther = G2 "reserved-for-other", "choose another volume, or clear spec.claimRef of this one";
    /// The claim is bound, and its volume only names it, without UID: it may be a namesake's.
    UidMissing = G2 "uid-missing",
        "write the claim's UID to spec.claimRef.uid of the volume if they belong together";
    /// The claim is bound but its volumeName is empty.
    ReferenceLost = G3 "reference-lost", "create a new claim; this one has lost its volume";
    /// The volume is smaller than the request.
    TooSmall = G3 "too-small", "choose a volume of at least that capacity";
    /// The volume lacks an access mode.
    AccessModesMissing = G3 "access-modes-missing", "choose a volume that offers these access modes";
    /// The classes differ.
    ClassDiffers = G3 "class-differs", "choose a volume of the claim's storageClassName";
    /// The volume modes differ.
    VolumeModeDiffers = G3 "volume-mode-differs", "choose a volume of the claim's volumeMode";
    /// The attributes classes differ.
    AttributesClassDiffers = G3 "attributes-class-differs",
        "choose a volume of the claim's volumeAttributesClassName";
    /// The labels do not match the selector.
    SelectorDiffers = G3 "selector-differs", "choose a volume whose labels match spec.selector";
    /// The volume is not Available.
    NotAvailable = G3 "not-available", "choose a volume in phase Available";
    /// The volume is being deleted.
    Deleting = G3 "deleting", "choose a volume that is not being deleted";
    /// The class waits for a consumer, so the scheduler chooses the volume.
    WaitsForConsumer = G3 "waits-for-consumer", "leave the choice to the scheduler";
    /// The class cannot be judged: it cannot be read, or has no binding mode.
    ClassUnknown = G3 "class-unknown", "repair the StorageClass";
    /// A live read that the engine saw shows that the claim still has the volume, or may yet get it.
    ClaimLives = G4 "claim-lives", "delete the claim if its volume is to be released";
    /// No object of that name, UID and version was read.
    NotRead = G5 "not-read", "the engine must act on what it was told";
    /// The decision names two versions of one object.
    TwoVersions = G5 "two-versions", "the engine must name the version that it read";
    /// The name of a created volume is not the claim's.
    NameNotDerived = G5 "name-not-derived", "a provisioned volume is named pvc-<claim uid>";
    /// The initial lists are not complete.
    NotSynced = G6 "not-synced", "it is decided again when all lists are complete";
    /// The object, or one that it names, cannot be read.
    Unreadable = G7 "unreadable", "repair that object";
    /// The decision has too many steps, or its texts are too long.
    TooLarge = G8 "too-large", "the engine must answer less";
    /// A decision of that kind may not do this at all.
    OutOfPlace = G9 "out-of-place",
        "the engine must take this step in the sync or operation where it belongs";
    /// The bind writes are out of order.
    BindOrder = G9 "bind-order", "bind in four writes: claimRef, volume phase, volumeName, claim status";
    /// bound-by-controller would say something untrue.
    MarkWrong = G9 "mark-wrong", "mark exactly the pointers that the binder has chosen";
    /// The volume may not get that phase.
    VolumePhaseWrong = G9 "volume-phase-wrong", "set the phase that follows from claimRef and claim";
    /// The claim may not get that phase.
    ClaimPhaseWrong = G9 "claim-phase-wrong", "set the phase that follows from volumeName and volume";
    /// A field of the claim's status would say something untrue.
    StatusWrong = G9 "status-wrong", "copy the claim's status from its volume, or clear it";
    /// The claim may not get a class, or not this one.
    ClassNotDefault = G9 "class-not-default",
        "give only existing default classes, and only to unbound claims without class";
    /// An annotation would say something untrue.
    AnnotationWrong = G9 "annotation-wrong",
        "annotate with the class's provisioner and the driver that it migrates to";
    /// A finalizer may not be changed like that.
    FinalizerWrong = G9 "finalizer-wrong",
        "change only the deletion finalizers, as HonorPVReclaimPolicy says";
    /// The volume cannot be unbound like that.
    UnbindWrong = G9 "unbind-wrong", "clear what the binder wrote and keep what the user wrote";
    /// A released volume would be offered again.
    OfferedAgain = G9 "offered-again", "scrub the volume, or allow it to be offered with its data";
    /// An external provisioner reclaims the volume.
    Migrated = G9 "migrated", "leave the volume to the CSI driver that it migrated to";
    /// The operation may not start or go on like that.
    OperationWrong = G9 "operation-wrong", "start operations only as class, policy and phase ask for";
    /// The plugin may not be called like that.
    PluginCallWrong = G9 "plugin-call-wrong",
        "call only the operation's own plugin, at its point, on a fresh read";
    /// A policy rejects the volume.
    PolicyRejects = G10 "policy-rejects", "choose a volume that the policies of the claim allow";
    /// A reclaimer keeps the volume, and its reclaim policy would delete or scrub it.
    VolumeKept = G11 "volume-kept", "set the reclaim policy that the reclaimer wants first";
    /// The reclaim policy may not become that.
    ReclaimPolicyWrong = G11 "reclaim-policy-wrong",
        "set only the reclaim policy that a reclaimer wants, and that the volume had or the document allows";
    /// A write of mode steer is out of place.
    SteerWrong = S1 "steer-wrong", "choose, fence and touch only for steered claims that wait, in that order";
    /// The reservation is not Bindery's.
    ReservationForeign = S2 "reservation-foreign",
        "remove spec.claimRef of the volume if nobody needs the reservation";
    /// The volume may not be reserved.
    ReservationWrong = S3 "reservation-wrong", "reserve only the free volume that the claim has chosen";
    /// The volume may not get the label that steers the claim, or lose it.
    LabelWrong = S4 "label-wrong",
        "label only free volumes, for steered claims whose class waits for a consumer";
}
