//! Policies and engines that are cluster objects: loaded, put into effect between two decisions, and their
//! status written.
//!
//! A generation that cannot be loaded leaves the last good one in effect. Where there is none, everything that
//! the policy matches waits.

mod review;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use bindery_controller::Binder;
use bindery_kube::{ApiClient, ApiPort, PolicyObjects, PolicyWatches};
use bindery_policy::ObjectStatus;
use bindery_webhook::PolicyReviewer;
use tokio::time::{MissedTickBehavior, interval};

use self::review::ObjectReviewer;
use super::Arguments;
use super::components::Components;
use super::mode::ModeArgument;
use crate::policies::object::{Effect, Hosts, LoadedObject, LoadedObjects, ObjectName, chain, object_name};

/// How often changes of counters are written to status.
const STATUS_EVERY: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub(super) struct PolicyObjectsArgument {
    /// Load the cluster objects Engine, MatchPolicy and ReclaimPolicy of `policy.bindery.dev/v1alpha1` too,
    /// and put each change into effect. Nothing is decided before they are listed.
    #[arg(long, value_name = "true|false", env = "BINDERY_POLICY_OBJECTS", default_value_t = false,
          action = clap::ArgAction::Set)]
    pub(super) policy_objects: bool,
}

/// The objects with what they have loaded.
pub(super) struct ConfiguredObjects {
    objects: Arc<PolicyObjects>,
    hosts: Hosts,
    /// What files and settings load.
    base: Components,
    mode: ModeArgument,
    loaded: LoadedObjects,
}

impl ConfiguredObjects {
    /// The objects of a cluster, not loaded yet, and their watches.
    pub(super) fn new(
        arguments: &Arc<Arguments>,
        client: &ApiClient,
        base: Components,
    ) -> Result<(Self, PolicyWatches)> {
        let (objects, watches) = PolicyObjects::new(client);
        let (hosts, mode) =
            (Hosts::new(arguments.engine.cache(), arguments.policies.shipped())?, arguments.mode);
        Ok((Self { objects, hosts, base, mode, loaded: LoadedObjects::new() }, watches))
    }

    /// Reviews objects as they are applied.
    pub(super) fn reviewer(&self) -> Arc<dyn PolicyReviewer> {
        Arc::new(ObjectReviewer {
            objects: Arc::clone(&self.objects),
            hosts: self.hosts.clone(),
            files: Arc::clone(&self.base.policies),
            mode: self.mode,
        })
    }

    /// Waits until all kinds are listed, then loads them. `awaits` is told what is awaited.
    pub(super) async fn first(&mut self, awaits: impl Fn(String)) -> Components {
        while let Some(awaited) = self.objects.awaited() {
            awaits(awaited);
            self.objects.changed().await;
        }
        self.reload().await;
        self.components()
    }

    /// Puts changes into effect, and writes status while this replica leads, for ever.
    pub(super) async fn run(mut self, binder: Arc<Binder<ApiPort>>, leads: Arc<AtomicBool>) {
        let mut ticks = interval(STATUS_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_tick = tokio::select! {
                () = self.objects.changed() => false,
                _ = ticks.tick() => true,
            };
            if self.reload().await {
                let Components { engine, policies } = self.components();
                tracing::info!(
                    policies = policies.digest(),
                    engine = engine.digest(),
                    "policies are swapped"
                );
                binder.swap_engine(engine);
                binder.swap_policies(policies).await;
            }
            if leads.load(Ordering::Relaxed) {
                self.write_status(&binder, is_tick).await;
            }
        }
    }

    /// Loads the objects that have changed, and forgets those that are gone. Returns whether any did.
    async fn reload(&mut self) -> bool {
        let mut names = BTreeSet::new();
        let mut has_changed = false;
        for (object, status) in self.objects.all() {
            let name = object_name(&object);
            names.insert(name.clone());
            let earlier = self.loaded.remove(&name);
            let loaded = match earlier {
                Some(loaded) if loaded.is_current(&object, &self.objects) => loaded,
                earlier => {
                    has_changed = true;
                    let known: ObjectStatus = serde_json::from_value(status).unwrap_or_default();
                    let last_good = known.last_good;
                    LoadedObject::load(object, earlier, last_good, &self.hosts, &self.objects).await
                }
            };
            self.loaded.insert(name, loaded);
        }
        let known = self.loaded.len();
        self.loaded.retain(|name, _| names.contains(name));
        let config_maps = self.loaded.values().filter_map(LoadedObject::config_map).collect();
        self.objects.follow(&config_maps);
        has_changed || self.loaded.len() < known
    }

    /// What is in effect: files and settings, and the objects over them.
    fn components(&self) -> Components {
        let policies = chain(&self.base.policies, &self.loaded, self.mode != ModeArgument::Steer);
        let engine = self.engine().map_or(&self.base.engine, |(_, engine)| engine);
        Components { engine: Arc::clone(engine), policies: Arc::new(policies) }
    }

    /// The engine that an object has loaded, with the object's name: the first of several.
    fn engine(&self) -> Option<(&ObjectName, &Arc<dyn bindery_core::Engine>)> {
        self.loaded.iter().find_map(|(name, loaded)| match &loaded.effect {
            Effect::Engine(engine) => Some((name, engine)),
            _ => None,
        })
    }

    async fn write_status(&self, binder: &Binder<ApiPort>, with_counts: bool) {
        let policies = binder.policies();
        let current: BTreeMap<_, _> =
            self.objects.all().into_iter().map(|(object, status)| (object_name(&object), status)).collect();
        for (name, loaded) in &self.loaded {
            let known = current.get(name).cloned().unwrap_or_default();
            let known: ObjectStatus = serde_json::from_value(known).unwrap_or_default();
            let wanted = self.status(name, loaded, &known, &policies, with_counts);
            if wanted == known {
                continue;
            }
            let uid = loaded.object["metadata"]["uid"].as_str().unwrap_or_default();
            let status = serde_json::to_value(&wanted).unwrap_or_default();
            if let Err(error) = self.objects.write_status(&name.0, &name.1, uid, &status).await {
                tracing::warn!(kind = name.0, name = name.1, error, "the status cannot be written");
            }
        }
    }
}
