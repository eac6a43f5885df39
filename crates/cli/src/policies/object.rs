//! Policies and engines that are cluster objects: what each has loaded.

mod compilations;
mod fault;
mod hosts;
pub(crate) mod limit;
mod load;
mod module;
mod rollback;
mod shadow;
#[cfg(test)]
mod tests;
mod trial;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bindery_kube::read::ReadError;
use bindery_kube::{ApiClient, ConfigMapKey, PolicyObjects};
use bindery_policy::{
    Chain, ENGINE, LastGood, LatestFault, MATCH_POLICY, ObjectStatus, ObservedEngine, Policy, RECLAIM_POLICY,
    ReclaimRule, RolledBack, ShadowMetrics,
};
use bindery_registry::{Digest, Extra};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

pub(crate) use self::fault::{Cause, Fault};
pub(crate) use self::hosts::{Hosts, blocking};
pub(crate) use self::module::config_map_key;
pub(crate) use self::shadow::{is_in_shadow, is_shadow, mode, replaces, shadows};
pub(crate) use self::wanted::wanted;
use super::Document;
use crate::compile::ComponentKind;
use crate::policy::module::CONFIG_MAP;

/// What an object puts into effect.
#[derive(Clone, Default)]
pub(crate) enum Effect {
    Match(Policy),
    Reclaim(ReclaimRule),
    Engine(Arc<ObservedEngine>),
    #[default]
    None,
}

/// An object with what it has loaded.
#[derive(Clone, Default)]
pub(crate) struct LoadedObject {
    /// The object without its status.
    pub(crate) object: Value,
    pub(crate) effect: Effect,
    /// SHA-256 of the module of the newest generation, if it could be read.
    pub(crate) wanted: Option<Digest>,
    /// The generation in effect, unless it is off or none was ever ready.
    pub(crate) last_good: Option<LastGood>,
    /// The generation that is to be in effect, and whose module is not there yet.
    awaited: Option<LastGood>,
    /// Generations that were in effect before, the newest first.
    pub(crate) history: Vec<LastGood>,
    /// What the newest of them has put into effect, if this process had it.
    before: Option<Effect>,
    /// Whether its first calls failed, and it stays, because the generation before cannot be loaded.
    stays: bool,
    /// The generation that was taken back, if it is still the newest.
    pub(crate) rolled_back: Option<RolledBack>,
    pub(crate) fault: Option<Fault>,
    /// Whether the cache had no room for its module when it was last loaded, or has none for the awaited one.
    lacked_room: bool,
    /// The last fault of its modules.
    pub(crate) last_fault: LatestFault,
    /// The fingerprints of the keys that have signed the module of the newest generation; none where that
    /// could not be read, or no keys are trusted.
    pub(crate) signed_by: Option<BTreeSet<Digest>>,
    /// What it has shown as a shadow.
    pub(crate) shadow: ShadowMetrics,
    /// The ConfigMaps of its module and of the last good one, and the versions that were read.
    config_maps: Vec<(ConfigMapKey, Option<String>)>,
}

impl LoadedObject {
    /// An object that has loaded nothing. Its status is left out.
    pub(crate) fn new(mut object: Value) -> Self {
        object.as_object_mut().and_then(|fields| fields.remove("status"));
        Self { object, ..Self::default() }
    }

    /// What is in effect while an object is being loaded: what it has loaded earlier, or what holds all that
    /// it matches.
    pub(crate) fn awaiting(object: Value, earlier: Option<&Self>, known: &ObjectStatus) -> Self {
        let why = "the module is being read or compiled";
        let fault = Some(Fault { cause: Cause::Loading, why: why.to_owned() });
        let is_same = |earlier: &&Self| earlier.object["metadata"]["uid"] == object["metadata"]["uid"];
        let earlier = earlier.filter(is_same).cloned();
        let lacked_room = earlier.as_ref().is_some_and(Self::lacks_room);
        let mut new = Self { fault: fault.clone(), lacked_room, ..Self::new(object) };
        new.remember(earlier.as_ref(), known);
        new.last_good = None;
        match earlier {
            Some(earlier) if earlier.last_good.as_ref().is_some_and(|good| new.accepts(good)) => {
                Self { object: new.object, fault, lacked_room, wanted: None, signed_by: None, ..earlier }
            }
            _ if new.wants_shadow() => new,
            _ => Self { effect: held(&new.object, why), ..new },
        }
    }

    /// Loads an object. If it fails, the earlier generation stays, or the last good one of the object's
    /// status, `known`, is loaded.
    pub(crate) async fn load(
        object: Value,
        earlier: Option<Self>,
        known: &ObjectStatus,
        hosts: &Hosts,
        objects: &PolicyObjects,
    ) -> Self {
        let mut loading = Self::new(object);
        let is_same = |earlier: &Self| earlier.object["metadata"]["uid"] == loading.object["metadata"]["uid"];
        let earlier = earlier.filter(is_same);
        loading.remember(earlier.as_ref(), known);
        loading.last_fault = earlier.as_ref().map(|earlier| earlier.last_fault.clone()).unwrap_or_default();
        if loading.is_off() {
            loading.retire(None);
            return loading;
        }
        let object = loading.object.clone();
        let newest = hosts.for_object(earlier.as_ref().is_some_and(|earlier| loading.has_replaced(earlier)));
        let fault = match loading.attempt(&object, &newest, objects).await {
            Ok((effect, digest)) => {
                loading.effect = effect;
                if let Some(earlier) = &earlier {
                    loading.count_with(earlier, &digest);
                }
                let spec = object["spec"].as_object().cloned().unwrap_or_default();
                let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
                loading.effect.tell_faults(&loading.last_fault);
                loading.retire(Some(LastGood { generation, digest: digest.into(), spec }));
                loading.before = earlier.and_then(|earlier| match earlier.last_good == loading.last_good {
                    true => earlier.before,
                    // Without a good generation it holds what it matches.
                    false => earlier.last_good.map(|_| earlier.effect),
                });
                if loading.has_failed(known) {
                    loading.roll_back(hosts, objects).await;
                } else {
                    loading.rolled_back = None;
                }
                return loading;
            }
            Err(fault) => fault,
        };
        let is_known = |earlier: &Self| earlier.why_not_ready() == Some(&fault.why);
        if !earlier.as_ref().is_some_and(is_known) {
            let ((kind, name), reason) = (object_name(&object), &fault.why);
            match fault.cause {
                // It may be on its way.
                Cause::ModuleUnavailable => tracing::warn!(kind, name, reason, "the module is not there"),
                _ => tracing::error!(kind, name, reason, "the object cannot be loaded"),
            }
        }
        let last_good = loading.last_good.take().filter(|last_good| loading.accepts(last_good));
        match (earlier, last_good) {
            (Some(Self { effect, last_good: Some(last_good), before, shadow, stays, .. }), _)
                if loading.accepts(&last_good) =>
            {
                (loading.effect, loading.last_good) = (effect, Some(last_good));
                (loading.before, loading.shadow, loading.stays) = (before, shadow, stays);
            }
            (_, Some(last_good)) => {
                loading.effect = loading.restore(last_good, &fault.why, hosts, objects).await;
            }
            (_, None) if loading.wants_shadow() => {}
            (_, None) => loading.effect = held(&object, &fault.why),
        }
        if loading.has_failed(known) {
            loading.roll_back(hosts, objects).await;
        }
        loading.fault = Some(fault);
        loading
    }

    /// Whether it is another generation of an object that has loaded an earlier one.
    fn has_replaced(&self, earlier: &Self) -> bool {
        self.object["metadata"]["generation"] != earlier.object["metadata"]["generation"]
    }

    /// Whether an earlier generation may be in effect in place of the newest. A shadow holds nothing, so it
    /// replaces no generation that is to be enforced.
    fn accepts(&self, earlier: &LastGood) -> bool {
        self.wants_shadow() || !is_shadow(earlier)
    }

    /// Whether the object, and the ConfigMap of its module, are as they were loaded.
    pub(crate) fn is_current(&self, object: &Value, objects: &PolicyObjects) -> bool {
        let is_same = |field: &str| self.object["metadata"][field] == object["metadata"][field];
        let has_same_modules = self.config_maps.iter().all(|(at, version)| {
            objects.version(&at.namespace, &at.name).is_none_or(|now| Some(now) == *version)
        });
        let has_same_spec = self.object["spec"] == object["spec"];
        is_same("uid") && is_same("generation") && has_same_spec && has_same_modules
    }

    /// The ConfigMaps of its module and of the last good one.
    pub(crate) fn config_maps(&self) -> impl Iterator<Item = (String, String)> {
        self.config_maps.iter().map(|(at, _)| (at.namespace.clone(), at.name.clone()))
    }

    /// Why its newest generation is not in effect.
    pub(crate) fn why_not_ready(&self) -> Option<&str> {
        self.fault.as_ref().map(|fault| &*fault.why)
    }

    /// Whether its module could not be read or compiled, so that another try may succeed although nothing has
    /// changed.
    pub(crate) fn may_be_retried(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.may_pass(has_config_map(&self.object["spec"])))
    }

    /// Whether it is to be enforced, and the cache has no room for its module, also while that is compiled
    /// again.
    pub(crate) fn lacks_room(&self) -> bool {
        let lacks_room = self.lacked_room || self.fault.as_ref().is_some_and(Fault::lacks_room);
        lacks_room && !self.wants_shadow()
    }

    /// What tells whether it has another effect than before: object, generation, module, and why a newer one
    /// is not in effect.
    pub(crate) fn identity(&self) -> (Value, Value, Option<LastGood>, Option<String>) {
        let metadata = &self.object["metadata"];
        let why = self.fault.as_ref().map(|fault| fault.why.clone());
        (metadata["uid"].clone(), metadata["generation"].clone(), self.last_good.clone(), why)
    }

    /// Fetches, compiles and checks the module of an object. Returns its digest too.
    pub(crate) async fn attempt(
        &mut self,
        object: &Value,
        hosts: &Hosts,
        objects: &PolicyObjects,
    ) -> Result<(Effect, String), Fault> {
        self.read_and_load(object, hosts, objects).await.map_err(Fault::shortened)
    }

    async fn read_and_load(
        &mut self,
        object: &Value,
        hosts: &Hosts,
        objects: &PolicyObjects,
    ) -> Result<(Effect, String), Fault> {
        load::document(object)?;
        let (module, mut cases) = self.module(object, hosts, objects).await?;
        let newest = (*object == self.object).then(|| Digest::of(&module));
        // A good one has passed the cases that its reference names. They take time, which a busy machine may
        // not have.
        let was_good = |digest: &Digest| {
            let module = object["spec"].get("module");
            let is_same =
                |it: &LastGood| it.spec.get("module") == module && *it.digest == *digest.to_string();
            self.last_good.as_ref().is_some_and(is_same)
        };
        if newest.as_ref().is_none_or(was_good) {
            cases.clear();
        }
        self.wanted = newest.or(self.wanted.take());
        let kept = (has_config_map(&object["spec"]) && hosts.review.is_none()).then(|| module.clone());
        let loaded = Self::loaded(object, module, cases, hosts).await?;
        if let Some(module) = kept {
            hosts.registry.keep(module).await;
        }
        Ok(loaded)
    }

    /// Compiles and checks a module.
    async fn loaded(
        object: &Value,
        module: Vec<u8>,
        cases: Vec<Extra>,
        hosts: &Hosts,
    ) -> Result<(Effect, String), Fault> {
        let kind = if object["kind"] == ENGINE { ComponentKind::Engine } else { ComponentKind::Policy };
        let is_shadow = is_in_shadow(object);
        let trial = match is_shadow {
            true => Arc::clone(&hosts.shadow_trials).acquire_owned().await.ok(),
            false => None,
        };
        // After the wait: what is compiled and not loaded yet may be removed to make room for others.
        hosts.compile(kind, &module, is_shadow).await?;
        let (object, hosts) = (object.clone(), hosts.clone());
        let loaded = spawn_blocking(move || {
            // Until it ends, also if its load is replaced by another one.
            let _trial = trial;
            load::load(&object, &module, &cases, &hosts)
        });
        let loaded = loaded.await;
        loaded.unwrap_or_else(|panic| Err(Fault { cause: Cause::ModuleInvalid, why: panic.to_string() }))
    }
}

/// Whether the module of a `spec` is in a ConfigMap.
fn has_config_map(spec: &Value) -> bool {
    spec["module"].as_str().is_some_and(|module| module.starts_with(CONFIG_MAP))
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
    objects.iter().find_map(|object| hold(object).ok()).unwrap_or(Effect::None)
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

/// Loads the objects of a cluster that its Bindery has loaded: those with a status. Names on standard error
/// those that cannot be loaded.
pub(crate) async fn of_cluster(client: &ApiClient, hosts: &Hosts) -> Result<LoadedObjects, ReadError> {
    let (objects, _) = PolicyObjects::new(client);
    let mut loaded = LoadedObjects::new();
    let all = objects.list().await?;
    let surplus = limit::surplus(all.iter().map(|(object, _)| object));
    for (object, status) in all {
        let status: ObjectStatus = serde_json::from_value(status).unwrap_or_default();
        let name = object_name(&object);
        if surplus.contains(&name) {
            loaded.insert(name, LoadedObject::left_out(object, &status, limit::too_many()));
        } else if status.observed_generation.is_some() {
            let object = LoadedObject::load(object, None, &status, hosts, &objects).await;
            loaded.insert(name, object);
        }
    }
    for ((kind, name), object) in &loaded {
        if let Some(why) = object.why_not_ready() {
            eprintln!("note: {kind} {name} cannot be loaded here, so what it holds seems to wait: {why}");
        }
    }
    Ok(loaded)
}

/// Whether a policy in a file, or a MatchPolicy in case of a ReclaimPolicy, has the name of an object.
pub(crate) fn is_taken((kind, name): &ObjectName, files: &Chain, loaded: &LoadedObjects) -> bool {
    let is_active =
        |name: &ObjectName| loaded.get(name).is_some_and(|object| !object.is_shadow() && !object.is_off());
    let is_policy = || is_active(&(MATCH_POLICY.to_owned(), name.clone()));
    let is_named = || kind == RECLAIM_POLICY && is_policy() || files.metrics(name).is_some();
    kind != ENGINE && is_active(&(kind.clone(), name.clone())) && is_named()
}

/// The policies of files and objects. An object whose name is taken holds what it matches, under a name of
/// its own; one over the limit, what no other object over the limit holds.
pub(crate) fn chain(files: &Chain, loaded: &LoadedObjects, with_reclaimers: bool) -> Chain {
    let (mut policies, mut reclaimers) = (files.policies().to_vec(), files.reclaimers().to_vec());
    let held = limit::held(loaded);
    for (name, object) in loaded.iter().filter(|(_, object)| !object.is_shadow()) {
        let is_taken = is_taken(name, files, loaded);
        match held.get(name).unwrap_or(&object.effect) {
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
