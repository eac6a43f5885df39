//! What decisions ask of the binder itself: its plugins, its configuration, its running operations.

use bindery_core::{
    Migration, OperationKind, OperationState, Plugin, PluginMatch, PluginOperation, Text, Uid, Volume,
};

/// The facts that no watch delivers.
///
/// A session asks while it holds the store's read lock: an implementation answers from memory and never
/// calls the store. Nothing subscribes to these facts: plugins and configuration stay as they are while a
/// binder runs, and an operation that ends has its object decided again itself.
pub trait Environment {
    /// The in-tree plugin of that name.
    fn plugin(&self, name: &str) -> Option<Plugin>;
    /// The in-tree plugins that support the source of the volume.
    fn plugin_for_volume(&self, volume: &Volume) -> PluginMatch;
    /// Whether the plugin constructs that operation.
    ///
    /// # Errors
    ///
    /// It does not; the plugin's error.
    fn plugin_ready(&self, name: &str, operation: PluginOperation) -> Result<(), Text>;
    /// The CSI migration of the plugin of that name.
    fn migration(&self, name: &str) -> Migration;
    /// Whether dynamic provisioning is on.
    fn dynamic_provisioning(&self) -> bool;
    /// Whether the operation of that kind on the object of that UID may start.
    fn operation(&self, kind: OperationKind, uid: &Uid) -> OperationState;
}
