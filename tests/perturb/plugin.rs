//! The in-tree plugin of the scenarios. Both replicas use the same assets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Order, Plugin, PluginError};
use bindery_core::{Plugin as Description, PluginOperation, Text, Volume};
use bindery_kube::Template;
use futures::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::delay::pass;
use crate::law;
use crate::timeline::Timeline;

/// The name of the plugin.
pub(crate) const PLUGIN: &str = "kubernetes.io/host-path";

/// How long an operation takes.
const LASTS: Duration = Duration::from_secs(3);

/// The plugin.
#[derive(Clone)]
pub(crate) struct Assets {
    timeline: Arc<Timeline>,
    /// Whether an asset exists that was made once, by the name of its volume.
    made: Arc<Mutex<BTreeMap<String, bool>>>,
    /// How many of the next calls fail.
    failures: Arc<Mutex<usize>>,
}

impl Assets {
    pub(crate) fn new(timeline: &Arc<Timeline>) -> Self {
        Self { timeline: Arc::clone(timeline), made: Arc::default(), failures: Arc::default() }
    }

    /// Notes the asset of a volume that the user creates.
    pub(crate) fn adopt(&self, volume: &Value) {
        let by = &volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"];
        if let (true, Some(name)) = (by == PLUGIN, volume["metadata"]["name"].as_str()) {
            self.made.lock().insert(name.to_owned(), true);
        }
    }

    /// Assets that have no volume.
    pub(crate) fn orphans(&self) -> Vec<String> {
        self.of_which(|exists, has_volume| exists && !has_volume)
    }

    /// Volumes whose assets were deleted.
    pub(crate) fn emptied(&self) -> Vec<String> {
        self.of_which(|exists, has_volume| !exists && has_volume)
    }

    /// The names for which a condition holds: by whether the asset exists, and whether the volume does.
    fn of_which(&self, holds: impl Fn(bool, bool) -> bool) -> Vec<String> {
        let has_volume = |name: &str| self.timeline.sim.object("persistentvolumes", None, name).is_some();
        let made = self.made.lock();
        let found = made.iter().filter(|(name, exists)| holds(**exists, has_volume(name)));
        found.map(|(name, _)| name.clone()).collect()
    }

    /// How many assets there are.
    pub(crate) fn count(&self) -> usize {
        self.made.lock().values().filter(|exists| **exists).count()
    }

    /// Has that many of the next calls fail.
    pub(crate) fn fail(&self, calls: usize) {
        *self.failures.lock() = calls;
    }

    fn fails(&self) -> Result<(), PluginError> {
        let mut failures = self.failures.lock();
        let Some(left) = failures.checked_sub(1) else { return Ok(()) };
        *failures = left;
        Err(PluginError::Failed("injected".into()))
    }

    fn make(&self, order: &Order) -> Template {
        self.made.lock().insert(order.name.to_string(), true);
        Template(json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": format!("/assets/{}", order.name)},
                "persistentVolumeReclaimPolicy": "Delete",
            },
        }))
    }

    /// Begins to destroy the data of the volume of that name.
    fn destroy(&self, name: &str, what: &str) {
        let volume = self.timeline.sim.object("persistentvolumes", None, name).unwrap_or_default();
        if let Some(violation) = law::destroys(&self.timeline.sim, &volume) {
            self.timeline.violated(&format!("the plugin {what}"), &violation);
        }
    }

    async fn remove(&self, name: String) -> Result<(), PluginError> {
        self.destroy(&name, "deletes");
        self.fails()?;
        pass(LASTS).await;
        self.made.lock().insert(name, false);
        Ok(())
    }
}

impl Plugin<Template> for Assets {
    fn describe(&self) -> Description {
        bindery_kit::plugin(PLUGIN)
    }

    fn supports(&self, volume: &Volume) -> bool {
        &*volume.source == "hostPath"
    }

    fn ready(&self, _: PluginOperation) -> Result<(), Text> {
        Ok(())
    }

    fn provision<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<Template, PluginError>> {
        let made = self.fails().map(|()| self.make(order));
        pass(LASTS).map(|()| made).boxed()
    }

    fn discard<'a>(&'a self, template: &'a Template) -> BoxFuture<'a, Result<(), PluginError>> {
        let path = template.0["spec"]["hostPath"]["path"].as_str().unwrap_or_default();
        self.remove(path.trim_start_matches("/assets/").to_owned()).boxed()
    }

    fn delete<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        self.remove(volume.name.to_string()).boxed()
    }

    fn recycle<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        self.destroy(&volume.name, "recycles");
        if let Some(violation) = law::scrubs_under_a_pod(&self.timeline, &volume.name) {
            self.timeline.violated("the plugin recycles", &violation);
        }
        let recycled = self.fails();
        let (timeline, name) = (Arc::clone(&self.timeline), volume.name.to_string());
        let recycled = async move {
            let before = timeline.sim.object("persistentvolumes", None, &name);
            pass(LASTS).await;
            if let (Ok(()), Some(volume)) = (&recycled, before) {
                timeline.note_scrub(&volume);
            }
            recycled
        };
        recycled.boxed()
    }
}
