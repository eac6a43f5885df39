//! Kubernetes events: closed kinds with upstream's types and reasons; the host writes the text.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::named::named_cases;
use crate::{ClaimTarget, ReclaimPolicy, Text, Uid, VolumeTarget};

/// An event on a claim or a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The object that it is about.
    pub regarding: Regarding,
    /// What happened.
    pub kind: EventKind,
}

/// The object of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Regarding {
    /// A claim.
    Claim(ClaimTarget),
    /// A volume; its events go to namespace `default`.
    Volume(VolumeTarget),
}

impl Regarding {
    /// UID of the object.
    pub fn uid(&self) -> &Uid {
        match self {
            Self::Claim(claim) => &claim.uid,
            Self::Volume(volume) => &volume.uid,
        }
    }
}

impl fmt::Display for Regarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(claim) => write!(f, "persistentvolumeclaim {}", claim.key),
            Self::Volume(volume) => write!(f, "persistentvolume {}", volume.name),
        }
    }
}

named_cases! {
    /// `type` of an event.
    #[derive(Serialize, Deserialize)]
    EventType {
        /// Nothing is wrong.
        Normal = "Normal";
        /// A user should look.
        Warning = "Warning";
    }
}

/// What happened, with the values that the text names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// No volume fits and the claim has no class that could provision one.
    NoVolumeFits,
    /// The named volume is bound to another claim.
    VolumeOfOther(Text),
    /// The class waits for a pod that uses the claim.
    WaitForFirstConsumer,
    /// These pods use the claim and are not scheduled yet.
    WaitForPodScheduled(Vec<Text>),
    /// The named volume cannot satisfy the claim.
    ClaimMismatch {
        /// Name of the volume.
        volume: Text,
        /// First check that failed.
        mismatch: Mismatch,
    },
    /// A policy rejects the free volume that the claim names.
    VolumeRejected {
        /// Name of the volume.
        volume: Text,
        /// The policy.
        policy: Text,
        /// Why, as a sentence.
        reason: Text,
    },
    /// The claim and the volume reserved for it have different volume modes; an event on the claim.
    ClaimModeMismatch {
        /// Name of the volume.
        volume: Text,
    },
    /// The claim and the volume reserved for it have different volume modes; an event on the volume.
    VolumeModeMismatch {
        /// Namespace and name of the claim, `namespace/name`.
        claim: Text,
    },
    /// A bound claim lost its reference to a volume.
    ClaimLostReference,
    /// A bound claim lost its volume, of this name.
    ClaimLostVolume(Text),
    /// The claim is bound to a volume, of this name, that belongs to another claim.
    ClaimMisbound(Text),
    /// Waiting for this provisioner, or for the administrator, to create a volume.
    ExternalProvisioning(Text),
    /// Provisioning failed.
    ProvisioningFailed(crate::Failure),
    /// A volume was provisioned: its name and the plugin.
    ProvisioningSucceeded {
        /// Name of the volume.
        volume: Text,
        /// Name of the plugin.
        plugin: Text,
    },
    /// The asset of a volume that could not be created could not be deleted either.
    ProvisioningCleanupFailed(crate::Failure),
    /// The plugin says that the volume is still in use.
    VolumeInUse(Text),
    /// The volume cannot be deleted.
    VolumeFailedDelete(crate::Message),
    /// The reclaim policy is unknown.
    UnknownReclaimPolicy,
    /// A reclaimer sets the reclaim policy.
    ReclaimPolicySet {
        /// The new policy.
        to: ReclaimPolicy,
        /// The reclaimer's policy.
        policy: Text,
        /// Why, as a sentence.
        reason: Text,
    },
    /// Recycling waits for these pods, `namespace/name` each.
    RecycleWaitsForPods(Vec<Text>),
    /// Recycling failed.
    VolumeFailedRecycle(crate::Message),
    /// The volume was recycled.
    VolumeRecycled,
    /// The object, or one that it names, cannot be read: which, and why.
    Unreadable(Text),
}

/// Why a volume that a claim names cannot satisfy it, in the order of upstream's
/// `checkVolumeSatisfyClaim`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mismatch {
    /// The volume is marked for deletion.
    Deleting,
    /// It is smaller than the request.
    TooSmall,
    /// It has another class.
    Class,
    /// It has another attributes class.
    AttributesClass,
    /// It has another volume mode.
    VolumeMode,
    /// It lacks an access mode.
    AccessModes,
}

impl EventKind {
    /// `type` and `reason` of the event, as upstream gives them. `VolumeRejected`, `ReclaimPolicySet` and
    /// `Unreadable` are Bindery's own.
    pub fn type_and_reason(&self) -> (EventType, &'static str) {
        use EventType::{Normal, Warning};
        match self {
            Self::NoVolumeFits => (Normal, "FailedBinding"),
            Self::VolumeOfOther(_) => (Warning, "FailedBinding"),
            Self::WaitForFirstConsumer => (Normal, "WaitForFirstConsumer"),
            Self::WaitForPodScheduled(_) => (Normal, "WaitForPodScheduled"),
            Self::ClaimMismatch { .. } | Self::ClaimModeMismatch { .. } | Self::VolumeModeMismatch { .. } => {
                (Warning, "VolumeMismatch")
            }
            Self::VolumeRejected { .. } => (Warning, "VolumeRejected"),
            Self::ClaimLostReference | Self::ClaimLostVolume(_) => (Warning, "ClaimLost"),
            Self::ClaimMisbound(_) => (Warning, "ClaimMisbound"),
            Self::ExternalProvisioning(_) => (Normal, "ExternalProvisioning"),
            Self::ProvisioningFailed(_) => (Warning, "ProvisioningFailed"),
            Self::ProvisioningSucceeded { .. } => (Normal, "ProvisioningSucceeded"),
            Self::ProvisioningCleanupFailed(_) => (Warning, "ProvisioningCleanupFailed"),
            Self::VolumeInUse(_) => (Normal, "VolumeDelete"),
            Self::VolumeFailedDelete(_) => (Warning, "VolumeFailedDelete"),
            Self::UnknownReclaimPolicy => (Warning, "VolumeUnknownReclaimPolicy"),
            Self::ReclaimPolicySet { .. } => (Normal, "ReclaimPolicySet"),
            Self::RecycleWaitsForPods(_) => (Normal, "VolumeFailedRecycle"),
            Self::VolumeFailedRecycle(_) => (Warning, "VolumeFailedRecycle"),
            Self::VolumeRecycled => (Normal, "VolumeRecycled"),
            Self::Unreadable(_) => (Warning, "Unreadable"),
        }
    }
}
