//! Policies and engines that are cluster objects: what each has loaded.

mod shadow;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use bindery_core::Engine;
use bindery_host::{Host, Limits, Options, PolicyHost};
use bindery_kube::read::ReadError;
use bindery_kube::{ApiClient, ConfigMapKey, PolicyObjects};
use bindery_policy::{
    Chain, ENGINE, EffectMode, EngineDocument, LastGood, MATCH_POLICY, ObjectStatus, Policy, RECLAIM_POLICY,
    ReclaimRule, ShadowMetrics,
};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

pub(crate) use self::shadow::shadows;
use super::{Document, Loaded, parse};
use crate::engine::CacheArgument;
use crate::policy::module::{self, CONFIG_MAP, ShippedArgument};

/// What runs the components of objects.
#[derive(Clone)]
pub(crate) struct Hosts {
    engines: Arc<Host>,
    policies: Arc<PolicyHost>,
    shipped: ShippedArgument,
}

impl Hosts {
    /// Hosts with this cache, and the folder of the policies that ship.
    pub(crate) fn new(cache: &CacheArgument, shipped: &ShippedArgument) -> Result<Self> {
        let options = Options { cache: cache.engine_cache.clone(), ..Options::default() };
        Ok(Self {
            engines: Arc::new(Host::new(&options)?),
            policies: Arc::new(module::host(cache)?),
            shipped: shipped.clone(),
        })
    }
}

/// What an object puts into effect.
#[derive(Clone)]
pub(crate) enum Effect {
    Match(Policy),
    Reclaim(ReclaimRule),
    Engine(Arc<dyn Engine>),
    None,
}

/// Why a generation is not ready.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) cause: Cause,
    pub(crate) why: String,
}

/// The cause of a [`Fault`]; its name is the reason of the condition `Ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The object breaks a rule of documents.
    Invalid,
    /// The module could not be read.
    ModuleUnavailable,
    /// The module is not a component of this kind, or it failed.
    ModuleInvalid,
    /// The module does not accept the settings.
    SettingsInvalid,
}

impl Cause {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid",
            Self::ModuleUnavailable => "ModuleUnavailable",
            Self::ModuleInvalid => "ModuleInvalid",
            Self::SettingsInvalid => "SettingsInvalid",
        }
    }
}

impl Fault {
    /// The field that is at fault.
    pub(crate) fn field(&self) -> &'static str {
        match self.cause {
            Cause::SettingsInvalid => "spec.settings",
            Cause::ModuleInvalid | Cause::ModuleUnavailable => "spec.module",
            Cause::Invalid => "spec",
        }
    }
}

/// An object with what it has loaded.
pub(crate) struct LoadedObject {
    /// The object without its status.
    pub(crate) object: Value,
    pub(crate) effect: Effect,
    /// The generation in effect, unless it is off or none was ever ready.
    pub(crate) last_good: Option<LastGood>,
    pub(crate) fault: Option<Fault>,
    /// What it has shown as a shadow.
    pub(crate) shadow: ShadowMetrics,
    /// The ConfigMaps of its module and of the last good one, and the versions that were read.
    config_maps: Vec<(ConfigMapKey, Option<String>)>,
}

/// A module before it is compiled.
enum Module {
    File(PathBuf),
    Bytes(Vec<u8>),
}

impl LoadedObject {
    /// An object that has loaded nothing.
    pub(crate) fn new(object: Value) -> Self {
        let (last_good, fault, shadow, config_maps) = Default::default();
        Self { object, effect: Effect::None, last_good, fault, shadow, config_maps }
    }

    /// Loads an object. If it fails, the earlier generation stays, or the last good one of the object's
    /// status is loaded.
    pub(crate) async fn load(
        object: Value,
        earlier: Option<Self>,
        last_good: Option<LastGood>,
        hosts: &Hosts,
        objects: &PolicyObjects,
    ) -> Self {
        let mut loading = Self::new(object);
        let is_same = |earlier: &Self| earlier.object["metadata"]["uid"] == loading.object["metadata"]["uid"];
        let earlier = earlier.filter(is_same);
        if loading.is_off() {
            return loading;
        }
        let object = loading.object.clone();
        let fault = match loading.attempt(&object, hosts, objects).await {
            Ok((effect, digest)) => {
                loading.effect = effect;
                if let Some(earlier) = earlier {
                    loading.count_with(&earlier, &digest);
                }
                let spec = object["spec"].as_object().cloned().unwrap_or_default();
                let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
                loading.last_good = Some(LastGood { generation, digest: digest.into(), spec });
                return loading;
            }
            Err(fault) => fault,
        };
        let (kind, name) = object_name(&object);
        tracing::error!(kind, name, error = fault.why, "the object cannot be loaded");
        let is_good = |last_good: &LastGood| loading.wants_shadow() || !shadow::is_shadow(last_good);
        match earlier {
            Some(Self { effect, last_good: Some(last_good), shadow, .. }) if is_good(&last_good) => {
                (loading.effect, loading.last_good, loading.shadow) = (effect, Some(last_good), shadow);
            }
            _ => {
                loading.effect = match last_good.filter(is_good) {
                    None if loading.wants_shadow() => Effect::None,
                    Some(last_good) => loading.restore(last_good, &fault.why, hosts, objects).await,
                    None => held(&object, &fault.why),
                };
            }
        }
        loading.fault = Some(fault);
        loading
    }

    /// Loads the last good generation, or what holds all that it matches.
    async fn restore(
        &mut self,
        last_good: LastGood,
        fault: &str,
        hosts: &Hosts,
        objects: &PolicyObjects,
    ) -> Effect {
        let mut object = self.object.clone();
        object["spec"] = Value::Object(last_good.spec.clone());
        let module = last_good.spec.get("module").and_then(Value::as_str);
        let has_config_map = module.is_some_and(|module| module.starts_with(CONFIG_MAP));
        match self.attempt(&object, hosts, objects).await {
            // A file comes with Bindery: a new build of it is still the same policy.
            Ok((effect, digest)) if *last_good.digest == *digest || !has_config_map => {
                self.last_good = Some(LastGood { digest: digest.into(), ..last_good });
                effect
            }
            _ if self.wants_shadow() => Effect::None,
            _ => held(&object, fault),
        }
    }

    /// Whether the object, and the ConfigMap of its module, are as they were loaded.
    pub(crate) fn is_current(&self, object: &Value, objects: &PolicyObjects) -> bool {
        let is_same = |field: &str| self.object["metadata"][field] == object["metadata"][field];
        let has_same_modules = self.config_maps.iter().all(|(at, version)| {
            objects.version(&at.namespace, &at.name).is_none_or(|now| Some(now) == *version)
        });
        is_same("uid") && is_same("generation") && has_same_modules
    }

    /// The ConfigMaps of its module and of the last good one.
    pub(crate) fn config_maps(&self) -> impl Iterator<Item = (String, String)> {
        self.config_maps.iter().map(|(at, _)| (at.namespace.clone(), at.name.clone()))
    }

    /// Why its newest generation is not in effect.
    pub(crate) fn why_not_ready(&self) -> Option<&str> {
        self.fault.as_ref().map(|fault| &*fault.why)
    }

    /// Whether its module could not be read, so that another try may succeed although nothing has changed.
    pub(crate) fn may_be_retried(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.cause == Cause::ModuleUnavailable)
            && self.config_maps.is_empty()
    }

    /// What tells whether it has another effect than before: object, generation, module, and why a newer one
    /// is not in effect.
    pub(crate) fn identity(&self) -> (Value, Value, Option<LastGood>, Option<String>) {
        let metadata = &self.object["metadata"];
        let why = self.fault.as_ref().map(|fault| fault.why.clone());
        (metadata["uid"].clone(), metadata["generation"].clone(), self.last_good.clone(), why)
    }

    /// Continues the counters of the earlier generation, if it has the same module.
    fn count_with(&mut self, earlier: &Self, digest: &str) {
        if earlier.last_good.as_ref().is_none_or(|last| *last.digest != *digest) {
            return;
        }
        match (&mut self.effect, &earlier.effect) {
            (Effect::Match(policy), Effect::Match(earlier)) => policy.metrics = earlier.metrics.clone(),
            (Effect::Reclaim(rule), Effect::Reclaim(earlier)) => rule.metrics = earlier.metrics.clone(),
            _ => {}
        }
    }

    /// Fetches, compiles and checks the module of an object. Returns its digest too.
    pub(crate) async fn attempt(
        &mut self,
        object: &Value,
        hosts: &Hosts,
        objects: &PolicyObjects,
    ) -> Result<(Effect, String), Fault> {
        let unavailable =
            |error: anyhow::Error| Fault { cause: Cause::ModuleUnavailable, why: format!("{error:#}") };
        let name = object["spec"]["module"].as_str().unwrap_or_default();
        let module = self.module(name, hosts, objects).await.map_err(unavailable)?;
        let (object, hosts) = (object.clone(), hosts.clone());
        let compiled = spawn_blocking(move || compile(&object, module, &hosts)).await;
        compiled.unwrap_or_else(|panic| Err(Fault { cause: Cause::ModuleInvalid, why: panic.to_string() }))
    }

    async fn module(&mut self, name: &str, hosts: &Hosts, objects: &PolicyObjects) -> Result<Module> {
        let Some(place) = name.strip_prefix(CONFIG_MAP) else {
            if !name.starts_with('/') && !name.contains(':') {
                bail!("spec.module is {name:?}; a cluster object names a file by its absolute path");
            }
            return hosts.shipped.path(name, "".as_ref()).map(Module::File);
        };
        let [namespace, config_map, key] = place.split('/').collect::<Vec<_>>()[..] else {
            bail!("spec.module is {name:?}; give {CONFIG_MAP}NAMESPACE/NAME/KEY");
        };
        let [namespace, config_map, key] = [namespace, config_map, key].map(str::to_owned);
        let at = ConfigMapKey { namespace, name: config_map, key };
        let (read, version) = objects.module(&at).await;
        self.config_maps.push((at, version));
        read.map(Module::Bytes).map_err(anyhow::Error::msg)
    }
}

/// Compiles the module of an object, and checks its settings.
fn compile(object: &Value, module: Module, hosts: &Hosts) -> Result<(Effect, String), Fault> {
    let fault = |cause| move |error: anyhow::Error| Fault { cause, why: format!("{error:#}") };
    if object["kind"] == ENGINE {
        parse::<EngineDocument>(object).map_err(fault(Cause::Invalid))?;
        let limits = Limits::default();
        let engine = match &module {
            Module::File(path) => hosts.engines.load_file(path, limits),
            Module::Bytes(bytes) => hosts.engines.load(bytes, limits),
        };
        let engine = engine.map_err(anyhow::Error::from).map_err(fault(Cause::ModuleInvalid))?;
        let digest = engine.digest().to_owned();
        return Ok((Effect::Engine(Arc::new(engine)), digest));
    }
    let document = Document::of(object).map_err(fault(Cause::Invalid))?;
    let policy = match &module {
        Module::File(path) => module::load(&hosts.policies, path, Limits::policy()),
        Module::Bytes(bytes) => hosts.policies.load(bytes, Limits::policy()).map_err(anyhow::Error::from),
    };
    let policy = policy.map_err(fault(Cause::ModuleInvalid))?;
    let digest = policy.digest().to_owned();
    let checked = document.check_settings(&policy).context("it did not check its settings");
    let checked = checked.map_err(fault(Cause::ModuleInvalid))?;
    checked.map_err(|why| fault(Cause::SettingsInvalid)(anyhow!(why)))?;
    let loaded = document.load(Ok(policy)).map_err(fault(Cause::ModuleInvalid))?;
    Ok((Effect::from(loaded), digest))
}

/// What holds everything that an object matches. A field that this version does not know, or a wrong name,
/// does not let go what it holds; where what it matches cannot be read, it holds everything.
fn held(object: &Value, why: &str) -> Effect {
    if object["kind"] == ENGINE {
        return Effect::None;
    }
    let named = |spec: Value| {
        let mut held = object.clone();
        (held["metadata"], held["spec"]) = (json!({"name": "unreadable"}), spec);
        held
    };
    let matches =
        json!({"module": "", "match": object["spec"]["match"].as_object().cloned().unwrap_or_default()});
    let objects = [object.clone(), named(matches), named(json!({"module": ""}))];
    let hold = |object: &Value| Document::of(object)?.load(Err(why.to_owned()));
    objects.iter().find_map(|object| hold(object).ok()).map_or(Effect::None, Effect::from)
}

impl From<Loaded> for Effect {
    fn from(loaded: Loaded) -> Self {
        match loaded {
            Loaded::Match(policy) => Self::Match(policy),
            Loaded::Reclaim(rule) => Self::Reclaim(rule),
        }
    }
}

impl LoadedObject {
    /// Whether the object is turned off.
    pub(crate) fn is_off(&self) -> bool {
        let mode = serde_json::from_value(self.object["spec"]["mode"].clone());
        matches!(mode, Ok(EffectMode::Off))
    }
}

/// Why an object whose name another policy has is not in effect.
pub(crate) const TAKEN: &str = "another policy has its name";

/// Kind and name of an object.
pub(crate) type ObjectName = (String, String);

/// The kind and the name of an object.
pub(crate) fn object_name(object: &Value) -> ObjectName {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// Objects with what they have loaded.
pub(crate) type LoadedObjects = BTreeMap<ObjectName, LoadedObject>;

/// Loads the objects of a cluster that its Bindery has loaded: those with a status.
pub(crate) async fn of_cluster(client: &ApiClient, hosts: &Hosts) -> Result<LoadedObjects, ReadError> {
    let (objects, _) = PolicyObjects::new(client);
    let mut loaded = LoadedObjects::new();
    for (object, status) in objects.list().await? {
        let status: ObjectStatus = serde_json::from_value(status).unwrap_or_default();
        if status.observed_generation.is_some() {
            let name = object_name(&object);
            let object = LoadedObject::load(object, None, status.last_good, hosts, &objects).await;
            loaded.insert(name, object);
        }
    }
    Ok(loaded)
}

/// Whether a policy in a file, or a MatchPolicy in case of a ReclaimPolicy, has the name of an object.
pub(crate) fn is_taken((kind, name): &ObjectName, files: &Chain, loaded: &LoadedObjects) -> bool {
    let is_active = |name: &ObjectName| loaded.get(name).is_some_and(|object| !object.is_shadow());
    let is_policy = || is_active(&(MATCH_POLICY.to_owned(), name.clone()));
    let is_named = || kind == RECLAIM_POLICY && is_policy() || files.metrics(name).is_some();
    kind != ENGINE && is_active(&(kind.clone(), name.clone())) && is_named()
}

/// The policies of files and objects. An object whose name is taken holds what it matches, under a name of
/// its own.
pub(crate) fn chain(files: &Chain, loaded: &LoadedObjects, with_reclaimers: bool) -> Chain {
    let (mut policies, mut reclaimers) = (files.policies().to_vec(), files.reclaimers().to_vec());
    for (name, object) in loaded.iter().filter(|(_, object)| !object.is_shadow()) {
        let is_taken = is_taken(name, files, loaded);
        match &object.effect {
            Effect::Match(policy) if is_taken => {
                let name = format!("{}.matchpolicy", policy.name).into();
                policies.push(Policy { name, matcher: Err(TAKEN.to_owned()), ..policy.clone() });
            }
            Effect::Match(policy) => policies.push(policy.clone()),
            Effect::Reclaim(_) if !with_reclaimers => {}
            Effect::Reclaim(rule) if is_taken => {
                let name = format!("{}.reclaimpolicy", rule.name).into();
                reclaimers.push(ReclaimRule { name, reclaimer: Err(TAKEN.to_owned()), ..rule.clone() });
            }
            Effect::Reclaim(rule) => reclaimers.push(rule.clone()),
            Effect::Engine(_) | Effect::None => {}
        }
    }
    Chain::new(policies).with_reclaimers(reclaimers)
}
