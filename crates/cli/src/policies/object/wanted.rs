//! The modules that objects name, so that they are kept.

use bindery_policy::{EffectMode, LastGood, ObjectStatus};
use bindery_registry::Digest;
use serde_json::Value;

use super::super::registry::{Wanted, named_digest};
use super::LoadedObject;
use super::shadow::{is_shadow, mode};
use crate::policy::module::CONFIG_MAP;

impl LoadedObject {
    /// The modules that it names.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = (Digest, Wanted)> {
        modules(&self.object, self.good(), &self.history)
    }
}

/// The modules that objects name, each with its status. A load takes a while, and its object names modules
/// before it begins.
pub(crate) fn wanted(all: &[(Value, Value)]) -> Vec<(Digest, Wanted)> {
    let mut wanted = Vec::new();
    for (object, status) in all {
        let known: ObjectStatus = serde_json::from_value(status.clone()).unwrap_or_default();
        wanted.extend(modules(object, known.last_good.as_ref(), &known.history));
    }
    wanted
}

/// The modules of registries that an object names now and in its earlier generations, by the digest that it
/// names; those of ConfigMaps that were good, by the digest of their bytes. That of the newest generation is
/// wanted for what its mode says, the others for what the good one does.
fn modules<'a>(
    object: &Value,
    good: Option<&'a LastGood>,
    history: &'a [LastGood],
) -> impl Iterator<Item = (Digest, Wanted)> {
    let of = |has_effect| if has_effect { Wanted::ForEffect } else { Wanted::ForShadow };
    let newest = of(mode(object) == EffectMode::Enforce);
    let of_earlier = good.map_or(newest, |good| of(!is_shadow(good)));
    let earlier =
        good.into_iter().chain(history).filter_map(|good| match good.spec.get("module")?.as_str()? {
            module if module.starts_with(CONFIG_MAP) => good.digest.parse().ok(),
            module => named_digest(module),
        });
    let now = object["spec"]["module"].as_str().and_then(named_digest).map(|module| (module, newest));
    now.into_iter().chain(earlier.map(move |module| (module, of_earlier)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The digest that ends like this.
    fn digest(end: u32) -> Digest {
        format!("sha256:{end:064}").parse().unwrap()
    }

    /// The spec with the module of a registry.
    fn spec(of: u32, mode: &str) -> Value {
        json!({"module": format!("oci://registry.example/m@{}", digest(of)), "mode": mode})
    }

    #[test]
    fn modules_of_statuses_are_wanted_before_their_objects_are_loaded() {
        let good = |digest: Digest, spec: Value| {
            let digest = digest.to_string();
            json!({"generation": 1, "digest": digest, "spec": spec})
        };
        let object = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
        let of_config_map = json!({"module": "configmap:default/modules/m.wasm"});
        let enforced = json!({
            "lastGood": good(digest(20), spec(2, "enforce")),
            "history": [good(digest(1), of_config_map)],
        });
        let in_shadow = json!({"lastGood": good(digest(40), spec(4, "shadow"))});
        let all = [
            (object("a", spec(3, "enforce")), enforced),
            (object("b", spec(5, "shadow")), in_shadow),
            (object("c", spec(6, "enforce")), Value::Null),
        ];
        let expected = [
            (3, Wanted::ForEffect),
            (2, Wanted::ForEffect),
            (1, Wanted::ForEffect),
            (5, Wanted::ForShadow),
            (4, Wanted::ForShadow),
            (6, Wanted::ForEffect),
        ];
        let expected = expected.map(|(of, wanted)| (digest(of), wanted));
        assert_eq!(wanted(&all), expected);
    }

    #[test]
    fn given_another_mode_than_the_good_one_a_module_is_wanted_by_its_own() {
        let of = |mode: &str, good: &str| {
            let good = json!({"generation": 1, "digest": digest(40).to_string(), "spec": spec(4, good)});
            wanted(&[(json!({"spec": spec(5, mode)}), json!({"lastGood": good}))])
        };
        let (shadow, effect) = (Wanted::ForShadow, Wanted::ForEffect);
        assert_eq!(of("enforce", "shadow"), [(digest(5), effect), (digest(4), shadow)]);
        assert_eq!(of("shadow", "enforce"), [(digest(5), shadow), (digest(4), effect)]);
        let off = json!({"spec": spec(6, "off")});
        assert_eq!(wanted(&[(off, Value::Null)]), [(digest(6), shadow)]);
    }
}
