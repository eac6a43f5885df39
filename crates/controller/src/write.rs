//! Writes: the actions of a decision that are one request each.

use bindery_core::{
    AccessMode, CapacityChange, ClaimPhase, ClaimTarget, Clear, Edit, FinalizerEdit, Message, Text, Version,
    Volume, VolumePhase, VolumeTarget,
};
use bindery_store::Kind;

/// One write request. Every target carries the UID and the version that the API server must find (G5 of the
/// design): the version that was read, or the one that an earlier write of the same decision returned.
///
/// The fields mean what those of the [`bindery_core::Action`] of the same name mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write<T> {
    /// [`bindery_core::Action::ReserveVolume`].
    ReserveVolume {
        /// The volume.
        volume: VolumeTarget,
        /// The claim; its version goes into `claimRef.resourceVersion`, as upstream writes it.
        claim: ClaimTarget,
        /// Whether bound-by-controller is added.
        mark: bool,
    },
    /// [`bindery_core::Action::SetVolumePhase`].
    SetVolumePhase {
        /// The volume.
        volume: VolumeTarget,
        /// The phase.
        phase: VolumePhase,
        /// The message.
        message: Message,
    },
    /// [`bindery_core::Action::BindClaim`].
    BindClaim {
        /// The claim.
        claim: ClaimTarget,
        /// Name of the volume, where `spec.volumeName` is to be set.
        volume_name: Option<Text>,
        /// Whether bound-by-controller is added.
        mark: bool,
    },
    /// [`bindery_core::Action::SetClaimStatus`].
    SetClaimStatus {
        /// The claim.
        claim: ClaimTarget,
        /// The phase.
        phase: ClaimPhase,
        /// `status.accessModes`.
        access_modes: Edit<Vec<AccessMode>>,
        /// `status.capacity`.
        capacity: CapacityChange,
        /// `status.currentVolumeAttributesClassName`.
        attributes_class: Edit<Text>,
    },
    /// [`bindery_core::Action::SetClaimClass`].
    SetClaimClass {
        /// The claim.
        claim: ClaimTarget,
        /// The class.
        class: Text,
    },
    /// [`bindery_core::Action::AnnotateClaim`].
    AnnotateClaim {
        /// The claim.
        claim: ClaimTarget,
        /// Value of both storage-provisioner keys.
        provisioner: Option<Text>,
        /// `pv.kubernetes.io/migrated-to`.
        migrated_to: Edit<Text>,
    },
    /// [`bindery_core::Action::RemoveSelectedNode`].
    RemoveSelectedNode {
        /// The claim.
        claim: ClaimTarget,
    },
    /// [`bindery_core::Action::AnnotateVolume`].
    AnnotateVolume {
        /// The volume.
        volume: VolumeTarget,
        /// `pv.kubernetes.io/migrated-to`.
        migrated_to: Edit<Text>,
        /// The whole list as it becomes, where it changes: a list can only be replaced.
        finalizers: Option<Vec<Text>>,
    },
    /// [`bindery_core::Action::UnbindVolume`].
    UnbindVolume {
        /// The volume.
        volume: VolumeTarget,
        /// What of claimRef is cleared.
        clear: Clear,
    },
    /// [`bindery_core::Action::CreateVolume`].
    CreateVolume {
        /// The claim that it is for.
        claim: ClaimTarget,
        /// Its deterministic name.
        name: Text,
        /// Its class.
        class: Text,
        /// The plugin that provisioned it.
        plugin: Text,
        /// What the plugin provisioned.
        template: T,
    },
    /// [`bindery_core::Action::DeleteVolume`].
    DeleteVolume {
        /// The volume.
        volume: VolumeTarget,
    },
}

impl<T> Write<T> {
    /// The verb and resource of the request, for logs and counters.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ReserveVolume { .. } => "reserve volume",
            Self::SetVolumePhase { .. } => "set volume phase",
            Self::BindClaim { .. } => "bind claim",
            Self::SetClaimStatus { .. } => "set claim status",
            Self::SetClaimClass { .. } => "set claim class",
            Self::AnnotateClaim { .. } => "annotate claim",
            Self::RemoveSelectedNode { .. } => "remove selected node of claim",
            Self::AnnotateVolume { .. } => "annotate volume",
            Self::UnbindVolume { .. } => "unbind volume",
            Self::CreateVolume { .. } => "create volume",
            Self::DeleteVolume { .. } => "delete volume",
        }
    }

    /// Name of the object that is written: of a volume, or `namespace/name` of a claim.
    pub fn object(&self) -> String {
        match self {
            Self::ReserveVolume { volume, .. }
            | Self::SetVolumePhase { volume, .. }
            | Self::AnnotateVolume { volume, .. }
            | Self::UnbindVolume { volume, .. }
            | Self::DeleteVolume { volume } => volume.name.to_string(),
            Self::CreateVolume { name, .. } => name.to_string(),
            Self::BindClaim { claim, .. }
            | Self::SetClaimStatus { claim, .. }
            | Self::SetClaimClass { claim, .. }
            | Self::AnnotateClaim { claim, .. }
            | Self::RemoveSelectedNode { claim } => claim.key.to_string(),
        }
    }
}

impl<T> Write<T> {
    /// The kind of the object that is written, and the version that the API server must find; none where the
    /// object is created.
    pub(crate) fn precondition(&self) -> (Kind, Option<&Version>) {
        match self {
            Self::ReserveVolume { volume, .. }
            | Self::SetVolumePhase { volume, .. }
            | Self::AnnotateVolume { volume, .. }
            | Self::UnbindVolume { volume, .. }
            | Self::DeleteVolume { volume } => (Kind::Volume, Some(&volume.version)),
            Self::CreateVolume { .. } => (Kind::Volume, None),
            Self::BindClaim { claim, .. }
            | Self::SetClaimStatus { claim, .. }
            | Self::SetClaimClass { claim, .. }
            | Self::AnnotateClaim { claim, .. }
            | Self::RemoveSelectedNode { claim } => (Kind::Claim, Some(&claim.version)),
        }
    }

    /// UID of the object that is written; none where it is created.
    pub fn uid(&self) -> Option<&str> {
        match self {
            Self::ReserveVolume { volume, .. }
            | Self::SetVolumePhase { volume, .. }
            | Self::AnnotateVolume { volume, .. }
            | Self::UnbindVolume { volume, .. }
            | Self::DeleteVolume { volume } => Some(&volume.uid.0),
            Self::CreateVolume { .. } => None,
            Self::BindClaim { claim, .. }
            | Self::SetClaimStatus { claim, .. }
            | Self::SetClaimClass { claim, .. }
            | Self::AnnotateClaim { claim, .. }
            | Self::RemoveSelectedNode { claim } => Some(&claim.uid.0),
        }
    }
}

/// The finalizers of a volume as an [`bindery_core::Action::AnnotateVolume`] leaves them; `None` where
/// nothing changes. Finalizers that the action does not name stay, in their order.
pub(crate) fn edited_finalizers(
    volume: &Volume,
    in_tree: FinalizerEdit,
    external: FinalizerEdit,
) -> Option<Vec<Text>> {
    let mut finalizers = volume.finalizers.clone();
    for (name, edit) in
        [(bindery_core::FINALIZER_IN_TREE, in_tree), (bindery_core::FINALIZER_EXTERNAL, external)]
    {
        match edit {
            FinalizerEdit::Keep => {}
            FinalizerEdit::Remove => finalizers.retain(|finalizer| &**finalizer != name),
            FinalizerEdit::Add if volume.has_finalizer(name) => {}
            FinalizerEdit::Add => finalizers.push(name.into()),
        }
    }
    (finalizers != volume.finalizers).then_some(finalizers)
}
