//! The facts about a binder that no watch delivers.

use bindery_core::{
    Migration, OperationKind, OperationState, Plugin, PluginMatch, PluginOperation, Text, Uid, Volume,
};
use bindery_store::Environment;

/// A binder that has no plugins and runs no operations.
#[derive(Clone, Copy, Debug)]
pub struct NoEnvironment;

impl Environment for NoEnvironment {
    fn plugin(&self, _: &str) -> Option<Plugin> {
        None
    }

    fn plugin_for_volume(&self, _: &Volume) -> PluginMatch {
        PluginMatch::None
    }

    fn plugin_ready(&self, _: &str, _: PluginOperation) -> Result<(), Text> {
        Err("no plugin".into())
    }

    fn migration(&self, _: &str) -> Migration {
        Migration::Off
    }

    fn dynamic_provisioning(&self) -> bool {
        true
    }

    fn operation(&self, _: OperationKind, _: &Uid) -> OperationState {
        OperationState::Idle
    }
}
