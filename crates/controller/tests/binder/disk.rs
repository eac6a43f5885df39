//! The in-tree plugin of the volumes in these tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bindery_controller::{Configuration, Order, Plugin, PluginError};
use bindery_core::{Plugin as Description, PluginOperation, Text, Volume};
use futures::future::{BoxFuture, FutureExt as _, TryFutureExt as _};
use tokio::sync::Semaphore;

use crate::double::Double;

/// Name of the plugin: one that is not migrated to a CSI driver.
pub(crate) const DISK: &str = "kubernetes.io/host-path";

/// A plugin that works once the test lets it.
pub(crate) struct Disk {
    double: Double,
    /// Its work waits for a permit; there are plenty unless a test takes them away.
    pub(crate) gate: Arc<Semaphore>,
    /// So many calls panic.
    pub(crate) panics: AtomicU32,
}

impl Disk {
    pub(crate) fn new(double: &Double) -> Arc<Self> {
        let (gate, panics) = (Arc::new(Semaphore::new(1_000)), AtomicU32::new(0));
        Arc::new(Self { double: double.clone(), gate, panics })
    }

    /// A configuration with this plugin alone.
    pub(crate) fn configuration(self: &Arc<Self>) -> Configuration<Volume> {
        let plugin: Arc<dyn Plugin<Volume>> = self.clone();
        Configuration { plugins: Arc::new([plugin].into_iter().collect()), ..Configuration::default() }
    }
}

impl Disk {
    async fn work(&self) -> Result<(), PluginError> {
        self.double.note("disk begins");
        let _permit = self.gate.acquire().await.expect("the gate is never closed");
        let left = self.panics.load(Ordering::Relaxed);
        self.panics.store(left.saturating_sub(1), Ordering::Relaxed);
        assert_eq!(left, 0, "a bug in a plugin");
        self.double.note("disk ends");
        Ok(())
    }
}

impl Plugin<Volume> for Disk {
    fn describe(&self) -> Description {
        bindery_kit::plugin(DISK)
    }

    fn supports(&self, volume: &Volume) -> bool {
        &*volume.source == "hostPath"
    }

    fn ready(&self, _: PluginOperation) -> Result<(), Text> {
        Ok(())
    }

    fn provision<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<Volume, PluginError>> {
        self.work().map_ok(|()| bindery_kit::volume(&order.name)).boxed()
    }

    fn discard<'a>(&'a self, _: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        self.work().boxed()
    }

    fn delete<'a>(&'a self, _: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        self.work().boxed()
    }

    fn recycle<'a>(&'a self, _: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        self.work().boxed()
    }
}
