//! Policies and engines that are cluster objects: loaded, put into effect between two decisions, and their
//! status written.
//!
//! A generation that cannot be loaded leaves the last good one in effect. Where there is none, everything
//! that the policy matches waits, or is decided without it if its `onFailure` says so.

mod catch_up;
mod effective;
mod loads;
mod refresh;
mod released;
mod replicas;
mod review;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bindery_controller::Binder;
use bindery_core::{Engine, Text};
use bindery_kube::{ApiClient, ApiPort, PolicyObjects, PolicyWatches, Wait};
use bindery_policy::{ObjectStatus, ObservedEngine};
use bindery_store::Revision;
use bindery_webhook::PolicyReviewer;
use futures::FutureExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use self::catch_up::catch_up;
use self::loads::Loads;
use self::released::Counting;
use self::review::ObjectReviewer;
use super::Arguments;
use super::components::Components;
use super::mode::ModeArgument;
use crate::policies::object::{Effect, Hosts, LoadedObject, LoadedObjects, ObjectName, chain, shadows};
use crate::policies::registry::pull_secrets::PullSecretsArgument;
use crate::policies::registry::{ObjectRegistryArguments, RegistryModules};

/// How often changes of counters are written to status.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// The field manager of what the leader writes.
const FIELD_MANAGER: &str = "bindery";

#[derive(clap::Args)]
pub(super) struct PolicyObjectsArgument {
    /// Load the cluster objects Engine, MatchPolicy and ReclaimPolicy of `policy.bindery.dev/v1alpha1` too,
    /// and put each change into effect. Nothing is decided before they are listed.
    #[arg(long, value_name = "true|false", env = "BINDERY_POLICY_OBJECTS", default_value_t = false,
          action = clap::ArgAction::Set)]
    pub(super) policy_objects: bool,
    #[command(flatten)]
    registry: ObjectRegistryArguments,
    #[command(flatten)]
    pull_secrets: PullSecretsArgument,
}

/// The objects with what they have loaded.
pub(super) struct ConfiguredObjects {
    objects: Arc<PolicyObjects>,
    hosts: Hosts,
    /// What files and settings load.
    base: Components,
    mode: ModeArgument,
    loaded: LoadedObjects,
    loads: Loads,
    /// The last write of each status.
    written: BTreeMap<ObjectName, WrittenStatus>,
    in_effect: watch::Sender<Generations>,
    readiness: Readiness,
    /// The name of this replica.
    identity: Text,
    /// Since when this replica has something else loaded than the leader.
    differs_since: BTreeMap<ObjectName, Instant>,
    /// The store in which the leader has last looked at what policies match.
    looked_at: Option<Revision>,
    /// The object whose status is looked at first.
    next_status: Option<ObjectName>,
}

/// Whether the newest generation of each object is in use, for metrics.
pub(super) type Readiness = Arc<Mutex<BTreeMap<ObjectName, bool>>>;

impl ConfiguredObjects {
    /// The objects of a cluster, not loaded yet, and their watches.
    pub(super) fn new(
        arguments: &Arc<Arguments>,
        client: &ApiClient,
        base: Components,
    ) -> Result<(Self, PolicyWatches)> {
        let (objects, watches) = PolicyObjects::new(client);
        let (loaded, written, in_effect, readiness, differs_since) = Default::default();
        let cache = &arguments.engine.cache;
        let policy_objects = &arguments.policy_objects;
        let pull_secrets = policy_objects.pull_secrets.of(client)?;
        let registry = RegistryModules::new(cache, &policy_objects.registry, pull_secrets)?;
        let configured = Self {
            objects,
            hosts: Hosts::new(cache, &arguments.policies.shipped, registry)?,
            base,
            mode: arguments.mode,
            loaded,
            loads: Loads::default(),
            written,
            in_effect,
            readiness,
            identity: arguments.lease.settings().identity.into(),
            differs_since,
            looked_at: None,
            next_status: None,
        };
        Ok((configured, watches))
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

    /// Waits until all kinds are listed, then loads them. `awaits` is told what is awaited. What a policy
    /// matches that is still being compiled by then is held; an engine is awaited, and no shadow.
    pub(super) async fn first(&mut self, awaits: impl Fn(String)) -> Components {
        while let Some(awaited) = self.objects.awaited() {
            awaits(awaited);
            self.objects.changed().await;
        }
        awaits("the compilation of engines and policies".to_owned());
        self.refresh(false);
        while self.loads.delay_start() {
            self.next_change().await;
        }
        self.publish();
        self.components()
    }

    /// The objects as they are watched.
    pub(super) fn watched(&self) -> Arc<PolicyObjects> {
        Arc::clone(&self.objects)
    }

    /// Whether each object is ready, for as long as the objects are loaded.
    pub(super) fn readiness(&self) -> Readiness {
        Arc::clone(&self.readiness)
    }

    /// What a new leader waits for before it decides.
    pub(super) fn catch_up(&self) -> Wait {
        let (objects, in_effect) = (Arc::clone(&self.objects), self.in_effect.subscribe());
        Arc::new(move || catch_up(Arc::clone(&objects), in_effect.clone()).boxed())
    }

    /// Puts changes into effect, and writes status while this replica leads, for ever.
    pub(super) async fn run(mut self, binder: Arc<Binder<ApiPort>>, leads: watch::Receiver<bool>) {
        let mut ticks = interval(STATUS_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut restores = binder.intake().freshness().regressions();
        let (mut changed, mut counting) = (Changed::default(), Counting::default());
        let (mut is_tick, mut is_to_count, mut is_written) = (false, false, true);
        loop {
            let goes_on_writing = !is_written && self.loads.together_until().is_none();
            tokio::select! {
                later = self.next_change() => changed.add(later),
                // The sender lives in the binder.
                _ = restores.changed() => {
                    self.objects.list_again();
                    self.written.clear();
                }
                _ = ticks.tick() => {
                    (is_tick, is_to_count) = (true, true);
                    changed.add(self.refresh(true));
                }
                () = ready(()), if goes_on_writing => {}
            }
            if self.loads.together_until().is_some() {
                continue;
            }
            self.swap(&binder, std::mem::take(&mut changed)).await;
            self.publish();
            if std::mem::take(&mut is_to_count) && *leads.borrow() {
                counting.go_on(&binder).await;
            }
            is_written = self.write_status(&binder, &leads, is_tick).await;
            is_tick &= !is_written;
        }
    }

    /// Waits for a change of an object, or for the end of a load, and takes it over. Returns what else is to
    /// be in effect. It may be dropped.
    async fn next_change(&mut self) -> Changed {
        let together_until = self.loads.together_until();
        tokio::select! {
            () = self.objects.changed() => self.refresh(false),
            () = self.hosts.registry.fetched() => self.refresh(true),
            (name, loaded) = self.loads.next() => self.finish(name, loaded),
            () = sleep_until(together_until.unwrap_or_else(Instant::now)), if together_until.is_some() => {
                self.hold_late()
            }
        }
    }

    /// Puts what is loaded and has changed into effect. While lists of objects with further facts are
    /// awaited, later changes replace what is to be put into effect.
    async fn swap(&mut self, binder: &Binder<ApiPort>, mut changed: Changed) {
        while changed.active || changed.shadows {
            let Components { engine, policies, shadows } = self.components();
            let digests = (policies.digest().to_owned(), engine.digest().to_owned());
            let swap = async {
                // Before the policies, which wake claims. A change of shadows wakes nothing.
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
                later = self.next_change() => changed.add(later),
            }
            while self.loads.together_until().is_some() {
                changed.add(self.next_change().await);
            }
        }
    }

    /// Tells new leaders and metrics what is loaded. Metrics have the first object over the limit of each
    /// kind, so that their number is bounded.
    fn publish(&self) {
        self.in_effect.send_replace(self.generations());
        let mut kinds = BTreeSet::new();
        let told =
            self.loaded.iter().filter(|(name, loaded)| !loaded.is_over_limit() || kinds.insert(&name.0));
        let ready =
            |(name, loaded): (&ObjectName, _)| (name.clone(), self.ready(name, loaded).status == "True");
        *self.readiness.lock() = told.map(ready).collect();
    }

    /// The generations that are loaded.
    fn generations(&self) -> Generations {
        self.loaded.iter().map(|(name, loaded)| (name.clone(), generation(&loaded.object))).collect()
    }

    /// Takes over what an object has loaded. Returns what else is to be in effect.
    fn finish(&mut self, name: ObjectName, loaded: LoadedObject) -> Changed {
        // One of a ConfigMap is known by its bytes only now.
        self.hosts.registry.want_also(loaded.wanted());
        let changed = self.replace(name, loaded);
        let config_maps = self.loaded.values().flat_map(LoadedObject::config_maps).collect();
        self.objects.follow(&config_maps);
        changed
    }

    fn replace(&mut self, name: ObjectName, mut loaded: LoadedObject) -> Changed {
        let changed = match self.loaded.remove(&name) {
            Some(earlier) if earlier.identity() == loaded.identity() => {
                loaded.continue_from(earlier);
                Changed::default()
            }
            earlier => {
                let was_shadow = earlier.as_ref().is_none_or(LoadedObject::is_shadow);
                let is_shadow = loaded.is_shadow();
                let shadows = is_shadow || was_shadow && earlier.is_some();
                Changed { active: !was_shadow || !is_shadow, shadows }
            }
        };
        self.loaded.insert(name, loaded);
        changed
    }

    /// Holds what objects match whose load takes long, or leaves their last good generations in effect.
    fn hold_late(&mut self) -> Changed {
        let mut changed = Changed::default();
        for (name, object, known) in self.loads.late() {
            let awaiting = LoadedObject::awaiting(object, self.loaded.get(&name), &known);
            changed.add(self.replace(name, awaiting));
        }
        changed
    }

    /// What is in effect: files and settings, and the objects over them.
    fn components(&self) -> Components {
        let reclaims = self.mode != ModeArgument::Steer;
        let policies = Arc::new(chain(&self.base.policies, &self.loaded, reclaims));
        Components { engine: self.deciding(), policies, shadows: shadows(&self.loaded, reclaims) }
    }

    /// The engine in effect.
    fn deciding(&self) -> Arc<dyn Engine> {
        self.engine().map_or_else(|| Arc::clone(&self.base.engine), |(_, engine)| engine)
    }

    /// The engine that an object has loaded, with the object's name: the first of several.
    fn engine(&self) -> Option<(&ObjectName, Arc<dyn Engine>)> {
        self.loaded.iter().find_map(|(name, loaded)| match &loaded.effect {
            Effect::Engine(engine) if !loaded.is_shadow() => {
                Some((name, Arc::<ObservedEngine>::clone(engine) as Arc<dyn Engine>))
            }
            _ => None,
        })
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

impl Changed {
    fn add(&mut self, later: Self) {
        self.active |= later.active;
        self.shadows |= later.shadows;
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

/// The generation of each object, with its UID and its spec: after a restore of etcd a generation may come a
/// second time.
type Generations = BTreeMap<ObjectName, [Value; 3]>;

fn generation(object: &Value) -> [Value; 3] {
    let metadata = &object["metadata"];
    [&metadata["uid"], &metadata["generation"], &object["spec"]].map(Value::clone)
}
