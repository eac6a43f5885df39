//! Compares the objects that the binder left with those that upstream left, by meaning.

use std::collections::BTreeMap;

use bindery_core::Quantity;
use serde_json::{Map, Value};

use crate::case::Objects;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The object and the path of the field, or `events`, or `fails`.
    pub path: String,
    /// What upstream has.
    pub expected: String,
    /// What the binder has.
    pub found: String,
}

/// Fields that recordings omit or that the API server writes.
const IGNORED: [&str; 5] =
    ["resourceVersion", "creationTimestamp", "lastPhaseTransitionTime", "managedFields", "generation"];

/// The differences between two sets of objects.
pub fn objects(expected: &Objects, found: &Objects) -> Vec<Difference> {
    let mut differences = Vec::new();
    for (kind, expected, found) in
        [("volume", &expected.volumes, &found.volumes), ("claim", &expected.claims, &found.claims)]
    {
        let (expected, found) = (by_name(expected), by_name(found));
        for name in expected.keys().chain(found.keys().filter(|name| !expected.contains_key(*name))) {
            let path = format!("{kind} {name}");
            match (expected.get(name), found.get(name)) {
                (Some(expected), Some(found)) => values(&path, expected, found, &mut differences),
                (expected, found) => differences.push(Difference {
                    path,
                    expected: presence(expected.is_some()),
                    found: presence(found.is_some()),
                }),
            }
        }
    }
    differences
}

/// The wanted objects that are missing or differ.
pub fn differing(wanted: &Objects, held: &Objects) -> Objects {
    let pick = |wanted: &[Value], held: &[Value]| {
        let held = by_name(held);
        let is_held = |object: &Value| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let mut differences = Vec::new();
            held.get(name).is_some_and(|held| {
                values(name, &normal(object), held, &mut differences);
                differences.is_empty()
            })
        };
        wanted.iter().filter(|object| !is_held(object)).cloned().collect()
    };
    Objects { volumes: pick(&wanted.volumes, &held.volumes), claims: pick(&wanted.claims, &held.claims) }
}

/// The difference between two plain values, if any.
pub fn plain<T: PartialEq + std::fmt::Debug>(path: &str, expected: &T, found: &T) -> Option<Difference> {
    (expected != found).then(|| Difference {
        path: path.to_owned(),
        expected: format!("{expected:?}"),
        found: format!("{found:?}"),
    })
}

fn presence(there: bool) -> String {
    if there { "present".to_owned() } else { "absent".to_owned() }
}

fn by_name(objects: &[Value]) -> BTreeMap<String, Value> {
    objects
        .iter()
        .map(|object| (object["metadata"]["name"].as_str().unwrap_or_default().to_owned(), normal(object)))
        .collect()
}

/// The object without ignored fields, nulls, and empty texts, lists and maps that mean the same as absent
/// ones.
fn normal(object: &Value) -> Value {
    let mut object = object.clone();
    if let Value::Object(fields) = &mut object {
        fields.retain(|key, _| !matches!(key.as_str(), "kind" | "apiVersion"));
    }
    prune(&mut object);
    object
}

fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            fields.retain(|key, value| !IGNORED.contains(&key.as_str()) && !is_nothing(key, value));
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

fn is_nothing(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => {
            text.is_empty() && matches!(key, "phase" | "message" | "reason" | "uid" | "pdName")
        }
        // An empty selector matches everything, which differs from no selector.
        Value::Object(fields) => fields.is_empty() && key != "selector",
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn values(path: &str, expected: &Value, found: &Value, differences: &mut Vec<Difference>) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => fields(path, expected, found, differences),
        (Value::String(a), Value::String(b)) if is_quantity(path) && same_quantity(a, b) => {}
        _ if expected == found => {}
        _ => differences.push(Difference {
            path: path.to_owned(),
            expected: expected.to_string(),
            found: found.to_string(),
        }),
    }
}

fn fields(
    path: &str,
    expected: &Map<String, Value>,
    found: &Map<String, Value>,
    differences: &mut Vec<Difference>,
) {
    for key in expected.keys().chain(found.keys().filter(|key| !expected.contains_key(*key))) {
        let path = format!("{path}.{key}");
        // A recording without a UID matches any UID.
        if key == "uid" && path.matches('.').count() == 2 && !expected.contains_key(key) {
            continue;
        }
        values(
            &path,
            expected.get(key).unwrap_or(&Value::Null),
            found.get(key).unwrap_or(&Value::Null),
            differences,
        );
    }
}

fn is_quantity(path: &str) -> bool {
    path.ends_with(".capacity.storage") || path.ends_with(".requests.storage")
}

fn same_quantity(a: &str, b: &str) -> bool {
    matches!((Quantity::parse(a), Quantity::parse(b)), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(spec: Value) -> Objects {
        Objects { volumes: vec![json!({"metadata": {"name": "v"}, "spec": spec})], claims: Vec::new() }
    }

    #[test]
    fn quantities_are_compared_by_value() {
        let gibi = volume(json!({"capacity": {"storage": "1Gi"}}));
        assert_eq!(objects(&gibi, &volume(json!({"capacity": {"storage": "1024Mi"}}))), []);
        assert_eq!(objects(&gibi, &volume(json!({"capacity": {"storage": "1G"}}))).len(), 1);
    }

    #[test]
    fn a_missing_field_equals_an_empty_map_and_no_other_value() {
        let named = volume(json!({"claimRef": {"name": "c", "resourceVersion": "7"}, "annotations": {}}));
        assert_eq!(objects(&named, &volume(json!({"claimRef": {"name": "c"}}))), []);
        let found = objects(&named, &volume(json!({"claimRef": {"name": "d"}})));
        assert_eq!(found[0].path, "volume v.spec.claimRef.name");
    }

    #[test]
    fn an_additional_object_is_a_difference() {
        assert_eq!(objects(&Objects::default(), &volume(json!({})))[0].found, "present");
    }
}
