//! Persistent volumes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::named::named_cases;
use crate::steer::Reservation;
use crate::{
    AccessMode, AccessModes, Claim, ClaimKey, Facts, Quantity, RECLAIM_POLICY_BEFORE, Text, Uid, Version,
    VolumeFact, VolumeTarget,
};

/// A PersistentVolume (core/v1), reduced to what decisions need.
///
/// Components do not get labels and unknown finalizers: the index evaluates selectors, and writes keep the
/// finalizers that they do not name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// `metadata.name`.
    pub name: Text,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub version: Version,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.labels`.
    pub labels: BTreeMap<Text, Text>,
    /// The annotations that decisions read.
    pub annotations: VolumeAnnotations,
    /// `metadata.finalizers`.
    pub finalizers: Vec<Text>,
    /// `spec.capacity[storage]`; `None` where the volume has none.
    pub capacity: Option<Quantity>,
    /// `spec.accessModes`, in the order of the object.
    pub access_modes: Vec<AccessMode>,
    /// The class: the beta annotation where its key exists, else `spec.storageClassName`; `""` is none.
    pub class: Text,
    /// `spec.volumeMode`; unset means Filesystem.
    pub mode: VolumeMode,
    /// `spec.volumeAttributesClassName`; unset and `""` match alike, but each is copied as it is.
    pub attributes_class: Option<Text>,
    /// `spec.claimRef`.
    pub claim_ref: Option<ClaimRef>,
    /// `spec.persistentVolumeReclaimPolicy`.
    pub policy: ReclaimPolicy,
    /// Whether `spec.nodeAffinity.required` is set.
    pub node_affinity: bool,
    /// A hash of `spec.nodeAffinity.required`: volumes with equal ones can be reached from the same nodes.
    /// Components of engines and journals do not get this.
    #[serde(with = "crate::unrecorded")]
    pub topology: Option<u64>,
    /// Name of the field of `spec` that holds the source, such as `csi`, `hostPath` or `nfs`; empty where
    /// none does.
    pub source: Text,
    /// `status.phase`.
    pub phase: VolumePhase,
    /// The annotations, topology values and driver that policies declare. Components of engines do not get
    /// them.
    #[serde(default)]
    pub facts: Facts<VolumeFact>,
}

/// The annotations of a volume that decisions read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeAnnotations {
    /// Key `pv.kubernetes.io/bound-by-controller` exists.
    pub bound_by_controller: bool,
    /// Value of `pv.kubernetes.io/provisioned-by`, which may be empty.
    pub provisioned_by: Option<Text>,
    /// Value of `pv.kubernetes.io/migrated-to`, which may be empty.
    pub migrated_to: Option<Text>,
    /// Value of `volume.alpha.kubernetes.io/pre-resize-capacity`; `None` too where it does not parse
    /// (upstream logs that and falls back to the capacity).
    pub pre_resize_capacity: Option<Quantity>,
    /// The claim for which Bindery has reserved the volume. Components of engines and journals do not get
    /// this.
    #[serde(with = "crate::unrecorded")]
    pub reserved_for: Option<Box<Reservation>>,
    /// Value of [`crate::steer::FENCE`]. Components of engines and journals do not get this.
    #[serde(with = "crate::unrecorded")]
    pub fence: Option<Text>,
}

/// `spec.claimRef`: the claim that a volume is reserved for or bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRef {
    /// Namespace of the claim.
    pub namespace: Text,
    /// Name of the claim.
    pub name: Text,
    /// UID of the claim; `None` where the volume is only reserved by name.
    pub uid: Option<Uid>,
}

named_cases! {
    /// `spec.volumeMode`.
    #[derive(Serialize, Deserialize)]
    VolumeMode {
        /// A file system; also what an unset mode means.
        Filesystem = "Filesystem";
        /// A raw block device.
        Block = "Block";
    }
}

named_cases! {
    /// `spec.persistentVolumeReclaimPolicy`.
    #[derive(Serialize, Deserialize)]
    ReclaimPolicy {
        /// Keep the released volume for the administrator.
        Retain = "Retain";
        /// Delete the backing asset and the volume.
        Delete = "Delete";
        /// Scrub the volume and offer it again (deprecated upstream).
        Recycle = "Recycle";
        /// An unknown policy: the volume becomes Failed.
        Unknown = "";
    }
}

named_cases! {
    /// `status.phase` of a volume.
    #[derive(Serialize, Deserialize)]
    VolumePhase {
        /// No phase yet.
        Unset = "";
        /// Set by the API server at creation.
        Pending = "Pending";
        /// Free, or reserved for a claim.
        Available = "Available";
        /// Bound to a claim.
        Bound = "Bound";
        /// The claim is gone.
        Released = "Released";
        /// Reclaiming failed.
        Failed = "Failed";
    }
}

impl ReclaimPolicy {
    /// The policy of that name.
    pub fn of_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|policy| policy.name() == name).unwrap_or(Self::Unknown)
    }
}

impl ClaimRef {
    /// The key of the claim.
    pub fn claim_key(&self) -> ClaimKey {
        ClaimKey { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

impl Volume {
    /// The access modes as a set.
    pub fn access_set(&self) -> AccessModes {
        self.access_modes.iter().collect()
    }

    /// The name, UID and version by which an action names this volume.
    pub fn target(&self) -> VolumeTarget {
        VolumeTarget { name: self.name.clone(), uid: self.uid.clone(), version: self.version.clone() }
    }

    /// Whether claimRef names this claim, by UID or, where it has none, by name alone
    /// (upstream's `IsVolumeBoundToClaim`: a volume reserved by name counts).
    pub fn is_bound_to(&self, claim: &Claim) -> bool {
        self.claim_ref.as_ref().is_some_and(|claim_ref| {
            claim_ref.name == claim.key.name
                && claim_ref.namespace == claim.key.namespace
                && claim_ref.uid.as_ref().is_none_or(|uid| *uid == claim.uid)
        })
    }

    /// The claim for which the volume is reserved by name, and the annotation says that Bindery did that.
    /// `None` once the claimRef has a UID: then upstream has carried the reservation out.
    pub fn reservation(&self) -> Option<&Reservation> {
        let claim_ref = self.claim_ref.as_ref().filter(|claim_ref| claim_ref.uid.is_none())?;
        self.annotations.reserved_for.as_deref().filter(|reserved| reserved.claim == claim_ref.claim_key())
    }

    /// The value of a declared column.
    pub fn fact(&self, fact: &VolumeFact) -> Option<Text> {
        match fact {
            VolumeFact::Label(key) => self.labels.get(key).cloned(),
            VolumeFact::Annotation(_)
            | VolumeFact::Topology(_)
            | VolumeFact::Driver
            | VolumeFact::PhaseTransition => self.facts.get(fact).cloned(),
            VolumeFact::ClassName => Some(self.class.clone()),
            VolumeFact::Source => Some(self.source.clone()).filter(|source| !source.is_empty()),
            VolumeFact::ReclaimPolicy => {
                Some(self.policy.name()).filter(|name| !name.is_empty()).map(Text::from)
            }
        }
    }

    /// The attributes class for matching, where unset and `""` are equal.
    pub fn attributes_class_or_empty(&self) -> &str {
        self.attributes_class.as_deref().unwrap_or_default()
    }

    /// The reclaim policy that the volume had before a reclaimer set another one, since the claim of its
    /// claimRef is gone.
    pub fn policy_before(&self) -> Option<ReclaimPolicy> {
        let (policy, uid) = self.noted_policy()?.split_once(' ')?;
        let claim = self.claim_ref.as_ref()?.uid.as_ref()?;
        (*uid == *claim.0).then(|| ReclaimPolicy::of_name(policy))
    }

    /// The annotation [`RECLAIM_POLICY_BEFORE`] once a reclaimer sets that reclaim policy; `None` for none:
    /// the volume gets its own policy back.
    pub fn noted_with(&self, policy: ReclaimPolicy) -> Option<Text> {
        let own = self.policy_before().unwrap_or(self.policy);
        let claim = self.claim_ref.as_ref()?.uid.as_ref()?;
        (own != policy).then(|| format!("{} {claim}", own.name()).into())
    }

    /// The annotation [`RECLAIM_POLICY_BEFORE`], whatever claim it is about.
    pub fn noted_policy(&self) -> Option<&Text> {
        self.facts.get(&VolumeFact::Annotation(RECLAIM_POLICY_BEFORE.into()))
    }

    /// Whether a CSI driver serves the volume.
    pub fn is_csi(&self) -> bool {
        &*self.source == "csi"
    }

    /// Whether the volume has this finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|f| &**f == finalizer)
    }
}
