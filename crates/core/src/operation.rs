//! Long operations: provision, delete and recycle.
//!
//! Upstream runs them beside its queues (`scheduleOperation`); each reads and decides again as it goes. Here
//! every step is a decision of its own: the host carries it out and returns the outcome with the [`Point`]
//! that the decision named. The engine keeps nothing.

use serde::{Deserialize, Serialize};

use crate::{Text, Uid, Volume};

/// A long operation, as the decision that starts it describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// What is done.
    pub kind: OperationKind,
    /// In-tree plugin that does it, or the provisioner that is waited for; empty for delete and recycle,
    /// which look their plugin up when they run.
    pub plugin: Text,
    /// UID of the claim or volume that it is about. With kind and name it makes the operation's name.
    pub uid: Uid,
}

/// Kinds of operations. At most one of a name runs at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OperationKind {
    /// Hand a claim to an external provisioner (`provisionClaimOperationExternal`).
    ProvisionExternal,
    /// Provision a volume by an in-tree plugin (`provisionClaimOperation`).
    Provision,
    /// Delete the backing asset and the volume (`deleteVolumeOperation`).
    Delete,
    /// Scrub a volume and offer it again (`recycleVolumeOperation`).
    Recycle,
}

/// Whether an operation of some kind on some object may start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationState {
    /// None runs.
    Idle,
    /// One runs.
    Running,
    /// The last one failed and its delay has not passed.
    BackingOff,
}

/// How far an operation has come: its object, and its last point with the outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress<T> {
    /// The operation.
    pub operation: Operation,
    /// The object as the sync passed it; for a claim, as the operation's own writes left it.
    pub object: T,
    /// The volume that this operation read live last, as its own writes left it.
    pub fresh: Option<Volume>,
    /// The point that the operation has reached.
    pub point: Point,
    /// The outcome of that point; [`Returned::Success`] at [`Point::Start`].
    pub returned: Returned,
}

/// A point of an operation. Each doc begins with the kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Point {
    /// Any: nothing was done yet.
    Start,
    /// Provision, external or in-tree: the provisioner annotations were written.
    Annotated,
    /// Provision: the plugin was called.
    Provisioned,
    /// Provision: the volume was created, at this attempt (from 1).
    Created {
        /// How many attempts were made.
        attempt: u32,
    },
    /// Provision: the asset of a volume that could not be created was deleted, at this attempt (from 1).
    CleanedUp {
        /// How many attempts were made.
        attempt: u32,
    },
    /// Delete: the plugin was called.
    Deleted,
    /// Delete: the finalizer was removed.
    FinalizerRemoved,
    /// Recycle: the plugin was called.
    Recycled,
}

/// The outcome of a step of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Returned {
    /// It succeeded.
    Success,
    /// The object existed already (a create).
    AlreadyExists,
    /// The plugin reports that the volume is still in use; its text.
    InUse(Text),
    /// It failed: the error.
    Failed(Text),
}
