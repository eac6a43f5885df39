//! Persistent volume claims.

use serde::{Deserialize, Serialize};

use crate::named::named_cases;
use crate::steer::Choice;
use crate::{
    AccessMode, AccessModes, ClaimFact, ClaimKey, ClaimTarget, Facts, Quantity, Requirement, Selector, Text,
    Uid, Version, VolumeMode,
};

/// A PersistentVolumeClaim (core/v1), reduced to what decisions need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Namespace and name.
    pub key: ClaimKey,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub version: Version,
    /// Whether `metadata.deletionTimestamp` is set; upstream binds such claims anyway.
    pub deleting: bool,
    /// The annotations that decisions read.
    pub annotations: ClaimAnnotations,
    /// `spec.resources.requests[storage]`; zero where it is missing.
    pub request: Quantity,
    /// `spec.accessModes`, in the order of the object.
    pub access_modes: Vec<AccessMode>,
    /// The class: the beta annotation where its key exists, else `spec.storageClassName`. `None` (no
    /// opinion, a default class may be assigned) and `""` (no class, on purpose) match alike.
    pub class: Option<Text>,
    /// `spec.volumeMode`; unset means Filesystem.
    pub mode: VolumeMode,
    /// `spec.volumeAttributesClassName`; unset and `""` match alike.
    pub attributes_class: Option<Text>,
    /// `spec.selector`, without the requirement that steers the claim.
    pub selector: Option<Selector>,
    /// Whether the selector requires the label that steers the claim ([`crate::steer`]). Components of
    /// engines and journals do not get this.
    #[serde(with = "crate::unrecorded")]
    pub steered: bool,
    /// The volume that Bindery has chosen for it, where it is steered. Components of engines and journals do
    /// not get this.
    #[serde(with = "crate::unrecorded")]
    pub choice: Option<Box<Choice>>,
    /// `spec.volumeName`; `None` where it is empty.
    pub volume_name: Option<Text>,
    /// Whether `spec.dataSource` is set.
    pub data_source: bool,
    /// `status`.
    pub status: ClaimStatus,
    /// The labels, annotations and owner that policies declare. Components of engines do not get them.
    #[serde(default)]
    pub facts: Facts<ClaimFact>,
}

/// The annotations of a claim that decisions read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimAnnotations {
    /// Key `pv.kubernetes.io/bind-completed` exists.
    pub bind_completed: bool,
    /// Key `pv.kubernetes.io/bound-by-controller` exists.
    pub bound_by_controller: bool,
    /// Value of `volume.kubernetes.io/selected-node`, which may be empty.
    pub selected_node: Option<Text>,
    /// Value of `volume.kubernetes.io/storage-provisioner`, which may be empty.
    pub storage_provisioner: Option<Text>,
    /// Value of `volume.beta.kubernetes.io/storage-provisioner`, which may be empty.
    pub beta_storage_provisioner: Option<Text>,
    /// Value of `pv.kubernetes.io/migrated-to`, which may be empty.
    pub migrated_to: Option<Text>,
}

/// `status` of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimStatus {
    /// `status.phase`.
    pub phase: ClaimPhase,
    /// `status.accessModes`, in the order of the object; empty where absent.
    pub access_modes: Vec<AccessMode>,
    /// Whether `status.capacity` is present, with any keys.
    pub has_capacity: bool,
    /// `status.capacity[storage]`.
    pub capacity: Option<Quantity>,
    /// `status.currentVolumeAttributesClassName`.
    pub attributes_class: Option<Text>,
}

named_cases! {
    /// `status.phase` of a claim.
    #[derive(Serialize, Deserialize)]
    ClaimPhase {
        /// No phase yet.
        Unset = "";
        /// Waits for a volume.
        Pending = "Pending";
        /// Has its volume.
        Bound = "Bound";
        /// Had a volume that is gone or belongs to another claim.
        Lost = "Lost";
    }
}

impl Claim {
    /// Whether it is steered and waits for its volume.
    pub fn waits_steered(&self) -> bool {
        let is_pending = matches!(self.status.phase, ClaimPhase::Pending | ClaimPhase::Unset);
        let is_bound = self.volume_name.is_some() || self.annotations.bind_completed;
        self.steered && !self.deleting && is_pending && !is_bound
    }

    /// The access modes as a set.
    pub fn access_set(&self) -> AccessModes {
        self.access_modes.iter().collect()
    }

    /// The key, UID and version by which an action names this claim.
    pub fn target(&self) -> ClaimTarget {
        ClaimTarget { key: self.key.clone(), uid: self.uid.clone(), version: self.version.clone() }
    }

    /// The requirements of the selector. An invalid selector has none: it fails a decision before they count.
    pub fn requirements(&self) -> &[Requirement] {
        match &self.selector {
            Some(Selector::Requirements(requirements)) => requirements,
            Some(Selector::Invalid(_)) | None => &[],
        }
    }

    /// The value of a declared fact of the claim itself. Facts of its namespace and class are elsewhere.
    pub fn fact(&self, fact: &ClaimFact) -> Option<&Text> {
        match fact {
            ClaimFact::Namespace => Some(&self.key.namespace),
            ClaimFact::Name => Some(&self.key.name),
            ClaimFact::Label(_)
            | ClaimFact::Annotation(_)
            | ClaimFact::OwnerName
            | ClaimFact::OwnerOrdinal => self.facts.get(fact),
            ClaimFact::NamespaceLabel(_) | ClaimFact::ClassParameter(_) => None,
        }
    }

    /// The class for matching, where no class and `""` are equal.
    pub fn class_or_empty(&self) -> &str {
        self.class.as_deref().unwrap_or_default()
    }

    /// The attributes class for matching, where unset and `""` are equal.
    pub fn attributes_class_or_empty(&self) -> &str {
        self.attributes_class.as_deref().unwrap_or_default()
    }
}
