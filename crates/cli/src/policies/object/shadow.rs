//! Objects in mode `shadow`: they hold nothing, and decide beside what is in effect.

use std::sync::Arc;

use bindery_controller::{Shadow, ShadowPart};
use bindery_core::Text;
use bindery_policy::{ALL_PERCENT, EffectMode, LastGood, ObservedEngine};
use serde_json::{Map, Value};

use super::{Effect, LoadedObject, LoadedObjects};

impl LoadedObject {
    /// Whether the generation in effect decides beside others, and is not carried out.
    pub(crate) fn is_shadow(&self) -> bool {
        self.last_good.as_ref().map_or_else(|| self.wants_shadow(), is_shadow)
    }

    /// Whether the newest generation asks for that.
    pub(crate) fn wants_shadow(&self) -> bool {
        is_in_shadow(&self.object)
    }

    /// The share of claims and volumes about which it decides as a shadow, in percent.
    pub(crate) fn sample_percent(&self) -> u32 {
        let given = match &self.last_good {
            Some(good) => good.spec.get("samplePercent"),
            None => self.object["spec"].get("samplePercent"),
        };
        given.and_then(|percent| serde_json::from_value(percent.clone()).ok()).unwrap_or(ALL_PERCENT)
    }

    /// Whether the newest generation is turned off.
    pub(crate) fn is_off(&self) -> bool {
        mode(&self.object) == EffectMode::Off
    }
}

/// The mode of an object by its spec. An object whose mode cannot be read holds what it matches.
pub(crate) fn mode(object: &Value) -> EffectMode {
    read(&object["spec"]["mode"])
}

/// Whether an object is a shadow by its spec.
pub(crate) fn is_in_shadow(object: &Value) -> bool {
    mode(object) == EffectMode::Shadow
}

/// Whether a generation was a shadow. It does not count as a good one for an object that is to be enforced:
/// without it, the claims that the object matches wait.
pub(crate) fn is_shadow(last_good: &LastGood) -> bool {
    last_good.spec.get("mode").map(read) == Some(EffectMode::Shadow)
}

fn read(mode: &Value) -> EffectMode {
    serde_json::from_value(mode.clone()).unwrap_or_default()
}

/// The name of the policy that a shadow replaces in its decisions: its own, unless `spec.replaces` names
/// another one.
pub(crate) fn replaces<'a>(spec: Option<&'a Map<String, Value>>, name: &'a str) -> &'a str {
    spec.and_then(|spec| spec.get("replaces")?.as_str()).unwrap_or(name)
}

/// The shadows of objects.
pub(crate) fn shadows(loaded: &LoadedObjects, with_reclaimers: bool) -> Vec<Shadow> {
    let in_shadow = loaded.iter().filter(|(_, object)| object.is_shadow());
    let shadow = |((_, name), object): (&(String, String), &LoadedObject)| {
        let part = match &object.effect {
            Effect::Match(policy) => ShadowPart::Match(policy.clone()),
            Effect::Reclaim(rule) if with_reclaimers => ShadowPart::Reclaim(rule.clone()),
            Effect::Engine(engine) => ShadowPart::Engine(Arc::<ObservedEngine>::clone(engine)),
            Effect::Reclaim(_) | Effect::None => return None,
        };
        let spec = object.last_good.as_ref().map(|last_good| &last_good.spec);
        let (name, replaces) = (Text::from(&**name), Text::from(replaces(spec, name)));
        let (sample_percent, metrics) = (object.sample_percent(), object.shadow.clone());
        Some(Shadow { name, replaces, part, sample_percent, metrics })
    };
    in_shadow.filter_map(shadow).collect()
}
