//! The decision of an engine: its actions, which leave nothing to choose, and what follows them.

use serde::{Deserialize, Serialize};

use crate::{
    AccessMode, ClaimKey, ClaimPhase, ClaimTarget, Event, Finding, Operation, PluginOperation, Point,
    Quantity, ReclaimPolicy, Tally, Text, VolumePhase, VolumeTarget,
};

/// A decision. The host checks it (see [`crate::guard`]) and then carries out the steps in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// How long to wait before the first step, in milliseconds; only operations wait.
    pub wait_ms: u64,
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// What follows when the steps are done.
    pub outcome: Outcome,
    /// Why volumes were not chosen.
    pub tallies: Vec<Tally>,
    /// What a review found; empty for every other request.
    pub findings: Vec<Finding>,
    /// Decide the object again after this delay, in milliseconds, whatever else happens; the host waits at
    /// least a second.
    pub requeue_after_ms: Option<u64>,
}

/// An action and when it is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The action.
    pub action: Action,
    /// When it is carried out.
    pub follows: Follows,
}

/// When a step is carried out, and what its failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Follows {
    /// After every write before it succeeded; its own failure ends the decision with that failure.
    Success,
    /// After every write before it succeeded. Its own failure is logged and ends the steps, except for those
    /// that follow regardless; the outcome stays as decided.
    Tolerated,
    /// Always, even if steps before it failed. Its own failure is logged and changes nothing else.
    Regardless,
}

/// What follows when the steps are done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// All is done.
    Done,
    /// The sync or operation failed: the key is retried, or the operation backs off.
    Failed(Failure),
    /// The operation goes on: decide again, from this point.
    Continue(Point),
}

/// One action. Every write names the object, its UID and the version that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Reserves a volume for a claim (bind, first write; the commit point): sets `spec.claimRef` to the full
    /// reference.
    ReserveVolume {
        /// The volume.
        volume: VolumeTarget,
        /// The claim.
        claim: ClaimTarget,
        /// Whether bound-by-controller is added, because the binder chose the volume.
        mark: bool,
    },
    /// Sets `status.phase` and `status.message` of a volume.
    SetVolumePhase {
        /// The volume.
        volume: VolumeTarget,
        /// The new phase.
        phase: VolumePhase,
        /// The message that goes with it.
        message: Message,
    },
    /// Points a claim at a volume (bind, third write): `spec.volumeName` where it is not set yet, and
    /// bind-completed.
    BindClaim {
        /// The claim.
        claim: ClaimTarget,
        /// The volume.
        volume: VolumeTarget,
        /// Whether `spec.volumeName` is set; else it is already right.
        set_volume_name: bool,
        /// Whether bound-by-controller is added, because the binder chose the volume.
        mark: bool,
    },
    /// Sets the status of a claim.
    SetClaimStatus {
        /// The claim.
        claim: ClaimTarget,
        /// The phase.
        phase: ClaimPhase,
        /// `status.accessModes`: set to these; an empty list removes them.
        access_modes: Edit<Vec<AccessMode>>,
        /// `status.capacity`.
        capacity: CapacityChange,
        /// `status.currentVolumeAttributesClassName`.
        attributes_class: Edit<Text>,
    },
    /// Gives a claim without class a class: `spec.storageClassName` (KEP-3333).
    SetClaimClass {
        /// The claim.
        claim: ClaimTarget,
        /// Name of the class.
        class: Text,
    },
    /// Writes the provisioner and migration annotations of a claim.
    AnnotateClaim {
        /// The claim.
        claim: ClaimTarget,
        /// Value of both storage-provisioner keys; `None` leaves them.
        provisioner: Option<Text>,
        /// `pv.kubernetes.io/migrated-to`.
        migrated_to: Edit<Text>,
    },
    /// Removes the selected-node annotation, so that the scheduler chooses again.
    RemoveSelectedNode {
        /// The claim.
        claim: ClaimTarget,
    },
    /// Writes the migration annotation and the deletion finalizers of a volume, in one request.
    AnnotateVolume {
        /// The volume.
        volume: VolumeTarget,
        /// `pv.kubernetes.io/migrated-to`.
        migrated_to: Edit<Text>,
        /// [`crate::FINALIZER_IN_TREE`].
        in_tree_finalizer: FinalizerEdit,
        /// [`crate::FINALIZER_EXTERNAL`]; only ever removed.
        external_finalizer: FinalizerEdit,
    },
    /// Sets `spec.persistentVolumeReclaimPolicy` of a volume whose claim is gone, because a reclaimer says
    /// so. The host notes the policy that the volume had.
    SetReclaimPolicy {
        /// The volume.
        volume: VolumeTarget,
        /// The new policy.
        policy: ReclaimPolicy,
    },
    /// Takes a volume from the claim that it points at (first write of upstream's `unbindVolume`).
    UnbindVolume {
        /// The volume.
        volume: VolumeTarget,
        /// What of claimRef is cleared.
        clear: Clear,
    },
    /// Creates the volume that the plugin of this operation has provisioned, completed by the host: its
    /// deterministic name `pvc-<claim uid>`, claimRef, class, bound-by-controller, provisioned-by and, with
    /// policy Delete, the in-tree finalizer.
    CreateVolume {
        /// The claim that it is for.
        claim: ClaimTarget,
        /// Name of the volume.
        name: Text,
        /// Its class.
        class: Text,
        /// The plugin that provisioned it.
        plugin: Text,
    },
    /// Deletes the volume object, whose asset is gone.
    DeleteVolume {
        /// The volume.
        volume: VolumeTarget,
    },
    /// Records an event.
    Emit(Event),
    /// Decides a claim soon.
    EnqueueClaim(ClaimKey),
    /// Starts an operation, unless one of that name runs or backs off.
    StartOperation(Operation),
    /// Calls a plugin. This is the last step of its decision; the operation continues with the outcome of the
    /// call.
    CallPlugin {
        /// Name of the plugin.
        plugin: Text,
        /// What it is to do, on the object of the operation.
        operation: PluginOperation,
    },
}

/// A change of an optional field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Edit<T> {
    /// Stays as it is.
    Keep,
    /// Becomes this.
    Set(T),
    /// Is removed.
    Remove,
}

/// A change of a finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinalizerEdit {
    /// Stays as it is.
    Keep,
    /// Is added at the end.
    Add,
    /// Is removed.
    Remove,
}

/// A change of `status.capacity` of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CapacityChange {
    /// Stays as it is.
    Keep,
    /// Is removed.
    Remove,
    /// Its `storage` becomes this, other keys stay.
    Storage(Quantity),
    /// Becomes exactly this `storage`.
    Whole(Quantity),
}

/// What of a claimRef is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clear {
    /// All of it, and the bound-by-controller annotation: the binder had chosen the volume.
    Whole,
    /// Its UID: the user had reserved the volume by name, and that stays.
    Uid,
}

/// `status.message` of a volume; the host writes the text, which equals upstream's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// No message.
    Empty,
    /// The reclaim policy is unknown.
    UnknownReclaimPolicy,
    /// No one plugin that can delete supports the source of the volume of this name.
    NoDeleter {
        /// Name of the volume.
        volume: Text,
        /// What was found instead.
        found: PluginFound,
    },
    /// The plugin that provisioned the volume does not exist or cannot delete: its name.
    NoPlugin(Text),
    /// The plugin could not construct its deleter.
    DeleterNotReady {
        /// Name of the volume.
        volume: Text,
        /// The plugin's error.
        error: Text,
    },
    /// Deleting failed: the error.
    DeleteFailed(Text),
    /// No plugin can recycle the volume.
    NoRecycler,
    /// Recycling failed: the error.
    RecycleFailed(Text),
}

/// What a search for a plugin found instead of one that is able.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PluginFound {
    /// None that supports the source.
    None,
    /// Several: their names.
    Several(Vec<Text>),
    /// One that is not able.
    Unable,
}

/// Why a sync or an operation failed. The host writes the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// A read failed: the error.
    Read(Text),
    /// An object that the decision depends on cannot be read: which, and why.
    Unreadable(Text),
    /// The class has no volumeBindingMode: its name.
    BindingModeUnset(Text),
    /// The claim's selector is invalid: the error.
    SelectorInvalid(Text),
    /// The volume has no storage capacity: its name.
    NoCapacity(Text),
    /// A bind-completed annotation was removed: the claim names a volume of another claim. Its name.
    VolumeOfOther(Text),
    /// The class does not exist or cannot be read: its name, and the error.
    Class {
        /// Name of the class.
        name: Text,
        /// What is wrong.
        error: Text,
    },
    /// No in-tree plugin of this name provisions volumes.
    NoPlugin(Text),
    /// The in-tree plugin does not support data sources: its name.
    DataSource(Text),
    /// The plugin does not support the mount options of the class: its name.
    MountOptions(Text),
    /// The plugin could not construct the operation: the error.
    NotReady(Text),
    /// The selected node cannot be found: its name, and the error.
    Node {
        /// Name of the node.
        name: Text,
        /// What is wrong.
        error: Text,
    },
    /// The plugin failed: the error.
    Plugin(Text),
    /// The migrated plugin has no CSI driver: its name.
    Untranslatable(Text),
    /// A write failed: the error.
    Write(Text),
}

impl Decision {
    /// Nothing to do.
    pub fn done() -> Self {
        Self::new(Vec::new(), Outcome::Done)
    }

    /// These steps, then this outcome.
    pub fn new(steps: Vec<Step>, outcome: Outcome) -> Self {
        Self { wait_ms: 0, steps, outcome, tallies: Vec::new(), findings: Vec::new(), requeue_after_ms: None }
    }

    /// The actions, in order.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.steps.iter().map(|step| &step.action)
    }

    /// The name of the volume that it binds its claim to.
    pub fn chosen(&self) -> Option<&Text> {
        self.actions().find_map(|action| match action {
            Action::ReserveVolume { volume, .. } | Action::BindClaim { volume, .. } => Some(&volume.name),
            _ => None,
        })
    }
}

impl From<Action> for Step {
    fn from(action: Action) -> Self {
        Self { action, follows: Follows::Success }
    }
}
