//! Policies and engines that are cluster objects: loaded, put into effect between two decisions, and their
//! status written.
//!
//! A generation that cannot be loaded leaves the last good one in effect. Where there is none, everything
//! that the policy matches waits, or is decided without it if its `onFailure` says so.

mod review;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use bindery_controller::Binder;
use bindery_kube::{ApiClient, ApiPort, PolicyObjects, PolicyWatches};
use bindery_policy::{ObjectStatus, RECLAIM_POLICY};
use bindery_webhook::PolicyReviewer;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use self::review::ObjectReviewer;
use super::Arguments;
use super::components::Components;
use super::mode::ModeArgument;
use crate::policies::object::{
    Effect, Hosts, LoadedObject, LoadedObjects, ObjectName, chain, object_name, shadows,
};

/// How often changes of counters are written to status.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// How often a new leader lists policies until it has loaded them.
const LIST_EVERY: Duration = Duration::from_secs(2);

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
    /// The last write of each status.
    written: BTreeMap<ObjectName, WrittenStatus>,
    in_effect: watch::Sender<Generations>,
}

impl ConfiguredObjects {
    /// The objects of a cluster, not loaded yet, and their watches.
    pub(super) fn new(
        arguments: &Arc<Arguments>,
        client: &ApiClient,
        base: Components,
    ) -> Result<(Self, PolicyWatches)> {
        let (objects, watches) = PolicyObjects::new(client);
        let (loaded, written, in_effect) = Default::default();
        let (hosts, mode) =
            (Hosts::new(arguments.engine.cache(), arguments.policies.shipped())?, arguments.mode);
        Ok((Self { objects, hosts, base, mode, loaded, written, in_effect }, watches))
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
        self.reload(false).await;
        self.in_effect.send_replace(self.generations());
        self.components()
    }

    /// Tells a new leader which generations are in effect.
    pub(super) fn catch_up(&self) -> CatchUp {
        CatchUp { objects: Arc::clone(&self.objects), in_effect: self.in_effect.subscribe() }
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
            let changed = self.reload(is_tick).await;
            self.swap(&binder, changed).await;
            self.in_effect.send_replace(self.generations());
            if is_tick && leads.load(Ordering::Relaxed) {
                count_released(&binder).await;
            }
            self.write_status(&binder, &leads, is_tick).await;
        }
    }

    /// Puts what is loaded and has changed into effect. While lists of objects with further facts are
    /// awaited, later changes replace what is to be put into effect.
    async fn swap(&mut self, binder: &Binder<ApiPort>, mut changed: Changed) {
        while changed.active || changed.shadows {
            let Components { engine, policies, shadows } = self.components();
            let digests = (policies.digest().to_owned(), engine.digest().to_owned());
            let swap = async {
                // Before the policies, which wake every object. A change of shadows wakes none.
                if changed.active {
                    binder.swap_engine(engine);
                    binder.swap_policies(policies).await;
                }
                binder.swap_shadows(&shadows).await;
            };
            tokio::select! {
                () = swap => {
                    let shadows = shadows.len();
                    tracing::info!(policies = digests.0, engine = digests.1, shadows, "policies are swapped");
                    return;
                }
                () = self.objects.changed() => {}
            }
            let later = self.reload(false).await;
            changed.active |= later.active;
            changed.shadows |= later.shadows;
        }
    }

    /// The generations that are loaded.
    fn generations(&self) -> Generations {
        self.loaded.iter().map(|(name, loaded)| (name.clone(), generation(&loaded.object))).collect()
    }

    /// Loads the objects that have changed, and forgets those that are gone; `is_retry`: also those whose
    /// module could not be read. Returns what else is to be in effect.
    async fn reload(&mut self, is_retry: bool) -> Changed {
        let mut names = BTreeSet::new();
        let mut changed = Changed::default();
        for (object, status) in self.objects.all() {
            let name = object_name(&object);
            names.insert(name.clone());
            let earlier = self.loaded.remove(&name);
            let loaded = match earlier {
                Some(loaded)
                    if loaded.is_current(&object, &self.objects)
                        && !(is_retry && loaded.may_be_retried()) =>
                {
                    loaded
                }
                earlier => {
                    let before = earlier.as_ref().map(LoadedObject::identity);
                    let was_shadow = earlier.as_ref().is_none_or(LoadedObject::is_shadow);
                    let known: ObjectStatus = serde_json::from_value(status).unwrap_or_default();
                    let last_good = known.last_good;
                    let loaded =
                        LoadedObject::load(object, earlier, last_good, &self.hosts, &self.objects).await;
                    if before.as_ref() != Some(&loaded.identity()) {
                        changed.active |= !was_shadow || !loaded.is_shadow();
                        changed.shadows |= loaded.is_shadow() || was_shadow && before.is_some();
                    }
                    loaded
                }
            };
            self.loaded.insert(name, loaded);
        }
        self.loaded.retain(|name, gone| {
            let is_there = names.contains(name);
            changed.active |= !is_there && !gone.is_shadow();
            changed.shadows |= !is_there && gone.is_shadow();
            is_there
        });
        let config_maps = self.loaded.values().flat_map(LoadedObject::config_maps).collect();
        self.objects.follow(&config_maps);
        changed
    }

    /// What is in effect: files and settings, and the objects over them.
    fn components(&self) -> Components {
        let reclaims = self.mode != ModeArgument::Steer;
        let policies = Arc::new(chain(&self.base.policies, &self.loaded, reclaims));
        let engine = self.engine().map_or(&self.base.engine, |(_, engine)| engine);
        Components { engine: Arc::clone(engine), policies, shadows: shadows(&self.loaded, reclaims) }
    }

    /// The engine that an object has loaded, with the object's name: the first of several.
    fn engine(&self) -> Option<(&ObjectName, &Arc<dyn bindery_core::Engine>)> {
        self.loaded.iter().find_map(|(name, loaded)| match &loaded.effect {
            Effect::Engine(engine) if !loaded.is_shadow() => Some((name, engine)),
            _ => None,
        })
    }

    async fn write_status(&mut self, binder: &Binder<ApiPort>, leads: &AtomicBool, with_counts: bool) {
        let policies = binder.policies();
        for (object, status) in self.objects.all() {
            let name = object_name(&object);
            let Some(loaded) = self.loaded.get(&name).filter(|_| leads.load(Ordering::Relaxed)) else {
                continue;
            };
            let known: ObjectStatus = serde_json::from_value(status).unwrap_or_default();
            let wanted = self.status(&name, loaded, &known, &policies, with_counts);
            let uid = loaded.object["metadata"]["uid"].as_str().unwrap_or_default();
            let write = WrittenStatus { uid: uid.to_owned(), over: known, status: wanted };
            if write.status == write.over || self.written.get(&name) == Some(&write) {
                continue;
            }
            let status = serde_json::to_value(&write.status).unwrap_or_default();
            match self.objects.write_status(&name.0, &name.1, uid, &status).await {
                Ok(()) => _ = self.written.insert(name, write),
                Err(error) => {
                    tracing::warn!(kind = name.0, name = name.1, error, "the status cannot be written");
                }
            }
        }
    }
}

/// What has changed.
#[derive(Clone, Copy, Default)]
struct Changed {
    /// The engine or a policy in effect.
    active: bool,
    /// What decides beside them.
    shadows: bool,
}

/// Has reclaimers in shadow asked about released volumes, on a thread where that delays nothing else.
async fn count_released(binder: &Arc<Binder<ApiPort>>) {
    if binder.policies().shadows().any(|shadow| shadow.kind() == RECLAIM_POLICY) {
        let binder = Arc::clone(binder);
        if let Err(panic) = spawn_blocking(move || binder.count_released_for_shadows()).await {
            tracing::error!(%panic, "released volumes cannot be counted for shadows");
        }
    }
}

/// A write of a status. Fields of other managers stay, so the same status over the same one would change
/// nothing.
#[derive(PartialEq)]
struct WrittenStatus {
    uid: String,
    /// The status before.
    over: ObjectStatus,
    status: ObjectStatus,
}

/// The generation of each object, with its UID.
type Generations = BTreeMap<ObjectName, (Value, Value)>;

fn generation(object: &Value) -> (Value, Value) {
    (object["metadata"]["uid"].clone(), object["metadata"]["generation"].clone())
}

/// What a new leader waits for before it decides: the policies that the API server has.
pub(super) struct CatchUp {
    objects: Arc<PolicyObjects>,
    in_effect: watch::Receiver<Generations>,
}

impl CatchUp {
    /// Waits until what the API server has at this moment, or something later, is in effect.
    pub(super) async fn wait(&self) {
        let mut in_effect = self.in_effect.clone();
        loop {
            match self.objects.list().await {
                Ok(objects) => {
                    let has = |effect: &Generations, object: &Value| {
                        let (uid, wanted) = generation(object);
                        effect.get(&object_name(object)).is_some_and(|(known, generation)| {
                            *known == uid && generation.as_i64() >= wanted.as_i64()
                        })
                    };
                    let all = |effect: &Generations| objects.iter().all(|(object, _)| has(effect, object));
                    if timeout(LIST_EVERY, in_effect.wait_for(all)).await.is_ok() {
                        return;
                    }
                    tracing::warn!("this replica has not loaded the newest policies; no decision is made");
                }
                Err(error) => {
                    tracing::warn!(%error, "policies cannot be listed; no decision is made");
                    sleep(LIST_EVERY).await;
                }
            }
        }
    }
}
