//! In-tree volume plugins, which provision, delete and recycle volumes without an external provisioner.

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{Claim, Plugin as Description, PluginMatch, PluginOperation, Text, Volume};
use futures::future::BoxFuture;

/// An in-tree volume plugin (upstream's `ProvisionableVolumePlugin`, `DeletableVolumePlugin`,
/// `RecyclableVolumePlugin`). `T` is what [`crate::Port::Template`] is.
///
/// Every operation must be repeatable: after a crash it is run again.
pub trait Plugin<T>: Send + Sync {
    /// Its name and what it can do.
    fn describe(&self) -> Description;

    /// Whether it serves volumes of this source (upstream's `CanSupport`).
    fn supports(&self, volume: &Volume) -> bool;

    /// Whether the operation can be constructed (upstream's `NewProvisioner`, `NewDeleter`).
    ///
    /// # Errors
    ///
    /// It cannot; the text tells the user why.
    fn ready(&self, operation: PluginOperation) -> Result<(), Text>;

    /// Called when a binder begins to decide, as after a takeover: removes work that an earlier binder has
    /// begun and must not finish. The first decision waits for it, so it takes seconds at most. By default it
    /// removes nothing.
    fn take_over(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Makes an asset for a claim and describes it as a volume.
    fn provision<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<T, PluginError>>;

    /// Deletes the asset of a volume that was provisioned but could not be created.
    fn discard<'a>(&'a self, template: &'a T) -> BoxFuture<'a, Result<(), PluginError>>;

    /// Deletes the asset of a volume.
    fn delete<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>>;

    /// Scrubs the asset of a volume, so that it can be offered again.
    fn recycle<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>>;
}

/// The request for a volume to provision (upstream's `VolumeOptions`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Name of the volume. It is deterministic, so the asset can be found again after a crash.
    pub name: Text,
    /// The claim.
    pub claim: Claim,
    /// Name of the class; the plugin reads its parameters, policy and topologies for itself.
    pub class: Text,
    /// The node that the scheduler chose, if it chose one.
    pub node: Option<Text>,
}

impl Order {
    /// What is provisioned for a claim.
    pub fn of(claim: &Claim) -> Self {
        Self {
            name: format!("pvc-{}", claim.uid).into(),
            class: claim.class.clone().unwrap_or_else(|| "".into()),
            node: claim.annotations.selected_node.clone(),
            claim: claim.clone(),
        }
    }
}

/// Why a plugin failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// The volume is still in use: tried again later, without a change of phase.
    #[error("{0}")]
    InUse(Text),
    /// Anything else.
    #[error("{0}")]
    Failed(Text),
}

/// The plugins of a binder, by name.
pub struct Plugins<T> {
    by_name: BTreeMap<Text, Arc<dyn Plugin<T>>>,
}

impl<T> Plugins<T> {
    /// The plugin of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Plugin<T>>> {
        self.by_name.get(name)
    }

    /// Has every plugin remove the unfinished work of an earlier binder ([`Plugin::take_over`]).
    pub async fn take_over(&self) {
        futures::future::join_all(self.by_name.values().map(|plugin| plugin.take_over())).await;
    }

    /// The capabilities of the plugin of that name.
    pub fn describe(&self, name: &str) -> Option<Description> {
        self.get(name).map(|plugin| plugin.describe())
    }

    /// The plugins that support the source of a volume.
    pub(crate) fn supporting(&self, volume: &Volume) -> PluginMatch {
        let mut able = self.by_name.values().filter(|plugin| plugin.supports(volume));
        match (able.next(), able.next()) {
            (None, _) => PluginMatch::None,
            (Some(plugin), None) => PluginMatch::One(plugin.describe()),
            (Some(first), Some(second)) => PluginMatch::Several(
                [first, second].into_iter().chain(able).map(|plugin| plugin.describe().name).collect(),
            ),
        }
    }

    /// Whether the plugin of that name constructs that operation.
    ///
    /// # Errors
    ///
    /// It does not, or the plugin does not exist; the text says which.
    pub fn ready(&self, name: &str, operation: PluginOperation) -> Result<(), Text> {
        match self.get(name) {
            Some(plugin) => plugin.ready(operation),
            None => Err(format!("no volume plugin matched name: {name}").into()),
        }
    }
}

impl<T> Default for Plugins<T> {
    fn default() -> Self {
        Self { by_name: BTreeMap::new() }
    }
}

impl<T> FromIterator<Arc<dyn Plugin<T>>> for Plugins<T> {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Plugin<T>>>>(plugins: I) -> Self {
        Self { by_name: plugins.into_iter().map(|plugin| (plugin.describe().name, plugin)).collect() }
    }
}
