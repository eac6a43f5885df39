//! Storage classes.

use serde::{Deserialize, Serialize};

use crate::{ClaimFact, Facts, Text, Timestamp};

/// A StorageClass (storage.k8s.io/v1), reduced to what decisions need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// `metadata.name`.
    pub name: Text,
    /// `provisioner`.
    pub provisioner: Text,
    /// `volumeBindingMode`; `None` where it is unset, which upstream treats as an error of the class.
    pub binding_mode: Option<BindingMode>,
    /// Whether `mountOptions` has entries.
    pub mount_options: bool,
    /// Whether either annotation marks it as a default class.
    pub default: bool,
    /// `metadata.creationTimestamp`; the newest default class wins.
    pub created: Timestamp,
    /// The parameters that policies declare. Components of engines do not get them.
    #[serde(default)]
    pub parameters: Facts<ClaimFact>,
}

/// `volumeBindingMode` of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BindingMode {
    /// Claims are bound as soon as they exist.
    Immediate,
    /// Claims wait until a pod that uses them is scheduled.
    WaitForFirstConsumer,
}
