//! Texts for the enums in decisions. Engines answer enums, which can be counted and translated.
//!
//! Texts of `status.message` equal upstream's to the letter, because tools match on them. Texts of events and
//! failures need not.

use std::fmt;

use crate::decision::PluginFound;
use crate::{EventKind, Failure, Message, Mismatch};

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => Ok(()),
            Self::UnknownReclaimPolicy => {
                f.write_str("Volume has unrecognized PersistentVolumeReclaimPolicy")
            }
            Self::NoDeleter { volume, found } => {
                write!(f, "error getting deleter volume plugin for volume {volume:?}: {found}")
            }
            Self::NoPlugin(plugin) => write!(f, "no volume plugin matched name: {plugin}"),
            Self::DeleterNotReady { volume, error } => {
                write!(f, "failed to create deleter for volume {volume:?}: {error}")
            }
            Self::DeleteFailed(error) => f.write_str(error),
            Self::NoRecycler => f.write_str("No recycler plugin found for the volume!"),
            Self::RecycleFailed(error) => write!(f, "Recycle failed: {error}"),
        }
    }
}

impl fmt::Display for PluginFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no volume plugin matched"),
            Self::Several(names) => write!(f, "multiple volume plugins matched: {}", names.join(",")),
            Self::Unable => f.write_str("no deletable volume plugin matched"),
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleting => "the volume is marked for deletion",
            Self::TooSmall => "the volume is smaller than the claim asks for",
            Self::Class => "spec.storageClassName of claim and volume differ",
            Self::AttributesClass => "spec.volumeAttributesClassName of claim and volume differ",
            Self::VolumeMode => "spec.volumeMode of claim and volume differ",
            Self::AccessModes => "the volume lacks an access mode that the claim asks for",
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) | Self::Write(error) | Self::Plugin(error) => f.write_str(error),
            Self::Unreadable(what) => write!(f, "{what}"),
            Self::BindingModeUnset(class) => {
                write!(
                    f,
                    "volumeBindingMode not set for StorageClass {class:?}; \
                     set it to Immediate or WaitForFirstConsumer"
                )
            }
            Self::SelectorInvalid(error) => write!(f, "spec.selector: {error}"),
            Self::NoCapacity(volume) => {
                write!(f, "PersistentVolume {volume:?} has no spec.capacity.storage; set it")
            }
            Self::VolumeOfOther(volume) => {
                write!(f, "invalid binding of the claim to volume {volume:?}: it is claimed by another claim")
            }
            // Of a class that does not exist engines give upstream's error, which names it.
            Self::Class { error, .. } if error.starts_with("storageclass.storage.k8s.io ") => {
                f.write_str(error)
            }
            Self::Class { name, error } => write!(f, "storageclass.storage.k8s.io {name:?}: {error}"),
            Self::NoPlugin(plugin) => write!(f, "no volume plugin matched name: {plugin}"),
            Self::DataSource(plugin) => {
                write!(
                    f,
                    "plugin {plugin:?} is not a CSI plugin. \
                     Only CSI plugin can provision a claim with a datasource"
                )
            }
            Self::MountOptions(plugin) => {
                write!(
                    f,
                    "Mount options are not supported by the provisioner \
                     but StorageClass has mount options; plugin {plugin:?}"
                )
            }
            Self::NotReady(error) => write!(f, "Failed to create provisioner: {error}"),
            Self::Node { name, error } => write!(f, "Failed to get target node {name:?}: {error}"),
            Self::Untranslatable(plugin) => {
                write!(f, "in-tree plugin {plugin:?} counts as migrated but no CSI driver is known for it")
            }
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoVolumeFits => {
                f.write_str("no persistent volumes available for this claim and no storage class is set")
            }
            Self::VolumeOfOther(volume) => write!(f, "volume {volume:?} already bound to a different claim."),
            Self::WaitForFirstConsumer => {
                f.write_str("waiting for first consumer to be created before binding")
            }
            Self::WaitForPodScheduled(pods) => match pods.as_slice() {
                [pod] => write!(f, "waiting for pod {pod} to be scheduled"),
                pods => write!(f, "waiting for one of pods {} to be scheduled", pods.join(",")),
            },
            Self::ClaimMismatch { volume, mismatch } => {
                write!(f, "Cannot bind to requested volume {volume:?}: {mismatch}")
            }
            Self::VolumeRejected { volume, policy, reason } => {
                write!(f, "Cannot bind to requested volume {volume:?}: policy {policy} rejects it: {reason}")
            }
            Self::ReclaimPolicySet { to, policy, reason } => {
                write!(f, "policy {policy} sets the reclaim policy to {:?}: {reason}", to.name())
            }
            Self::ClaimModeMismatch { volume } => {
                write!(f, "Cannot bind to requested volume {volume:?}: {}", Mismatch::VolumeMode)
            }
            Self::VolumeModeMismatch { claim } => {
                write!(f, "Cannot bind to requested claim {claim:?}: {}", Mismatch::VolumeMode)
            }
            Self::ClaimLostReference => {
                f.write_str("Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
            }
            Self::ClaimLostVolume(volume) => {
                write!(f, "Bound claim has lost its PersistentVolume {volume:?}. Data on the volume is lost!")
            }
            Self::ClaimMisbound(volume) => {
                write!(f, "Two claims are bound to the same volume {volume:?}, this one is bound incorrectly")
            }
            Self::ExternalProvisioning(provisioner) => write!(
                f,
                "Waiting for a volume to be created either by \
                 the external provisioner {provisioner:?} or manually by the system administrator. \
                 If volume creation is delayed, please verify that \
                 the provisioner is running and correctly registered."
            ),
            Self::ProvisioningFailed(failure @ Failure::MountOptions(_)) => write!(f, "{failure}"),
            Self::ProvisioningFailed(failure) => write!(f, "Failed to provision volume: {failure}"),
            Self::ProvisioningSucceeded { volume, plugin } => {
                write!(f, "Successfully provisioned volume {volume} using {plugin}")
            }
            Self::ProvisioningCleanupFailed(failure) => {
                write!(f, "Error cleaning provisioned volume: {failure}. Please delete manually.")
            }
            Self::VolumeInUse(error) => write!(f, "{error}"),
            Self::VolumeFailedDelete(message) | Self::VolumeFailedRecycle(message) => write!(f, "{message}"),
            Self::UnknownReclaimPolicy => write!(f, "{}", Message::UnknownReclaimPolicy),
            Self::RecycleWaitsForPods(pods) => write!(f, "Volume is used by pods: {}", pods.join(",")),
            Self::VolumeRecycled => f.write_str("Volume recycled"),
            Self::Unreadable(what) => write!(f, "{what}"),
        }
    }
}
