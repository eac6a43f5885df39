//! The modules that objects name, so that they are kept.

use bindery_policy::ObjectStatus;
use bindery_registry::Digest;
use serde_json::Value;

use super::super::registry::{Wanted, named_digest};
use super::{LoadedObject, LoadedObjects};
use crate::policy::module::CONFIG_MAP;

impl LoadedObject {
    /// An object that is not loaded yet, with the generations of its status.
    fn of_status(object: &Value, status: &Value) -> Self {
        let known: ObjectStatus = serde_json::from_value(status.clone()).unwrap_or_default();
        let mut named = Self::new(object.clone());
        named.remember(None, &known);
        named
    }

    /// The modules of registries that it names now and in its earlier generations, by the digest that it
    /// names; those of ConfigMaps that were good, by the digest of their bytes.
    fn kept_modules(&self) -> impl Iterator<Item = Digest> {
        let earlier = self.good().into_iter().chain(&self.history);
        let earlier = earlier.filter_map(|good| match good.spec.get("module")?.as_str()? {
            module if module.starts_with(CONFIG_MAP) => good.digest.parse().ok(),
            module => named_digest(module),
        });
        self.object["spec"]["module"].as_str().and_then(named_digest).into_iter().chain(earlier)
    }
}

/// The modules that objects name: `all`, each with its status, and what is loaded. A load takes a while, and
/// its object names modules before it begins.
pub(crate) fn wanted(all: &[(Value, Value)], loaded: &LoadedObjects) -> Vec<(Digest, Wanted)> {
    let mut wanted = Vec::new();
    let mut want = |object: &LoadedObject| {
        let of = if object.is_shadow() { Wanted::ForShadow } else { Wanted::ForEffect };
        wanted.extend(object.kept_modules().map(|module| (module, of)));
    };
    all.iter().for_each(|(object, status)| want(&LoadedObject::of_status(object, status)));
    loaded.values().for_each(want);
    wanted
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
        assert_eq!(wanted(&all, &LoadedObjects::new()), expected);
    }
}
