//! Annotation keys, and names.

/// The claim has passed the initial bind once.
pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// This side's pointer was installed by the binder.
pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// The provisioner or plugin that made the volume.
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The CSI driver that took over from an in-tree plugin.
pub(crate) const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// The provisioner that is expected to act.
pub(crate) const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The same, always written together with the former.
pub(crate) const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// The node that the scheduler chose.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Capacity to publish while a file system resize is pending.
pub(crate) const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
/// The value of the first two.
pub(crate) const YES: &str = "yes";

/// The field manager of all writes. Replicas recognise each other's writes by it.
pub(crate) const FIELD_MANAGER: &str = "bindery";
/// On the Lease: the write of another binder that stopped recycling and deleting, until the operator removes
/// this.
pub const FOREIGN_WRITER: &str = "bindery.dev/foreign-writer";
/// On the Lease: its holder asks whether another replica could lead, or the identity of one that could.
pub(crate) const HAND_OVER: &str = "bindery.dev/hand-over";
