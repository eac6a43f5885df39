//! The modules that objects name, so that they are kept.

use bindery_policy::{LastGood, ObjectStatus};
use bindery_registry::Digest;
use serde_json::Value;

use super::super::registry::{Wanted, named_digest};
use super::LoadedObject;
use super::shadow::{is_in_shadow, is_shadow};
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
/// names; those of ConfigMaps that were good, by the digest of their bytes.
fn modules<'a>(
    object: &Value,
    good: Option<&'a LastGood>,
    history: &'a [LastGood],
) -> impl Iterator<Item = (Digest, Wanted)> {
    let in_shadow = good.map_or_else(|| is_in_shadow(object), is_shadow);
    let of = if in_shadow { Wanted::ForShadow } else { Wanted::ForEffect };
    let earlier =
        good.into_iter().chain(history).filter_map(|good| match good.spec.get("module")?.as_str()? {
            module if module.starts_with(CONFIG_MAP) => good.digest.parse().ok(),
            module => named_digest(module),
        });
    let now = object["spec"]["module"].as_str().and_then(named_digest);
    now.into_iter().chain(earlier).map(move |module| (module, of))
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
}
