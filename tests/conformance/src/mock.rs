//! The in-tree plugin of recorded cases (upstream's `mockVolumePlugin`).

use std::collections::BTreeMap;
use std::sync::Mutex;

use bindery_controller::{Migrations, Order, Plugin, PluginError};
use bindery_core::{PluginOperation, Text, Volume};
use bindery_kube::Template;
use futures::future::{BoxFuture, FutureExt, ready};
use serde_json::{Value, json};

use crate::case::{Case, MockOutcomes};

/// Name of the plugin.
pub(crate) const NAME: &str = "kubernetes.io/mock-volume";
/// The driver of every migrated in-tree plugin.
const MIGRATED_DRIVER: &str = "vendor.com/MockCSIDriver";

/// The plugin. It supports every source, and its calls have the results that the case lists.
pub(crate) struct MockPlugin {
    outcomes: MockOutcomes,
    policies: BTreeMap<String, Value>,
    /// The name of every disk that it provisions.
    disk: &'static str,
    calls: Mutex<BTreeMap<PluginOperation, usize>>,
}

impl MockPlugin {
    /// The plugin of a case.
    pub(crate) fn new(case: &Case, disk: &'static str) -> Option<Self> {
        let policy = |class: &Value| {
            Some((class["metadata"]["name"].as_str()?.to_owned(), class["reclaimPolicy"].clone()))
        };
        Some(Self {
            outcomes: case.plugin.clone()?,
            policies: case.classes.iter().filter_map(policy).collect(),
            disk,
            calls: Mutex::default(),
        })
    }

    fn planned(&self, operation: PluginOperation) -> Option<&Vec<Option<String>>> {
        match operation {
            PluginOperation::Provision => self.outcomes.provision.as_ref(),
            PluginOperation::Delete => self.outcomes.delete.as_ref(),
            PluginOperation::Recycle => self.outcomes.recycle.as_ref(),
        }
    }

    /// The result of the next call. The last one repeats.
    fn call(&self, operation: PluginOperation) -> Result<(), PluginError> {
        let mut calls = self.calls.lock().expect("no holder of the lock panics");
        let call = calls.entry(operation).or_default();
        // Upstream constructs the deleter of an asset only when it needs it.
        self.ready(operation).map_err(PluginError::Failed)?;
        let planned = self.planned(operation).map(Vec::as_slice).unwrap_or_default();
        let outcome = planned.get(*call).or(planned.last()).cloned().flatten();
        *call += 1;
        outcome.map_or(Ok(()), |error| Err(PluginError::Failed(error.into())))
    }

    fn volume(&self, order: &Order) -> Template {
        let modes: Vec<_> = order.claim.access_modes.iter().map(|mode| mode.name()).collect();
        Template(json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": &*order.name},
            "spec": {
                "capacity": {"storage": order.claim.request.to_string()},
                "accessModes": modes,
                "volumeMode": format!("{:?}", order.claim.mode),
                "persistentVolumeReclaimPolicy": self.policies.get(&*order.class),
                "gcePersistentDisk": {"pdName": self.disk},
            },
        }))
    }
}

impl Plugin<Template> for MockPlugin {
    fn describe(&self) -> bindery_core::Plugin {
        bindery_core::Plugin {
            name: NAME.into(),
            provisions: true,
            deletes: true,
            recycles: true,
            mount_options: false,
        }
    }

    fn supports(&self, _: &Volume) -> bool {
        true
    }

    fn ready(&self, operation: PluginOperation) -> Result<(), Text> {
        let calls = match operation {
            PluginOperation::Provision => "provisionCalls",
            PluginOperation::Delete => "deleteCalls",
            PluginOperation::Recycle => "recycleCalls",
        };
        match self.planned(operation) {
            Some(_) => Ok(()),
            None => Err(format!("Mock plugin error: no {calls} configured").into()),
        }
    }

    fn provision<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<Template, PluginError>> {
        ready(self.call(PluginOperation::Provision).map(|()| self.volume(order))).boxed()
    }

    fn discard<'a>(&'a self, _: &'a Template) -> BoxFuture<'a, Result<(), PluginError>> {
        ready(self.call(PluginOperation::Delete)).boxed()
    }

    fn delete<'a>(&'a self, _: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        ready(self.call(PluginOperation::Delete)).boxed()
    }

    fn recycle<'a>(&'a self, _: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        ready(self.call(PluginOperation::Recycle)).boxed()
    }
}

/// The in-tree plugins that are migrated in a case.
pub(crate) fn migrations(case: &Case) -> Migrations {
    if case.plugin.as_ref().is_some_and(|plugin| plugin.migrated) {
        return Migrations::Every(MIGRATED_DRIVER.into());
    }
    Migrations::upstream()
}
