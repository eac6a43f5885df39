//! Strategic merge patch, as `apimachinery/pkg/util/strategicpatch` does it.
//!
//! Maps are merged field by field. Lists whose Go field carries a patch strategy of `merge` are merged too:
//! those of objects by their merge key, those of plain values as sets. Directives (`$patch`, `$retainKeys`,
//! `$deleteFromPrimitiveList/…`, `$setElementOrder/…`) say what a plain merge cannot.

use serde_json::{Map, Value};

use crate::schema::{Field, Schema, Shape};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Why a patch cannot be merged.
#[derive(Debug)]
pub(super) enum Fault {
    /// `$patch` is none of merge, replace and delete.
    UnknownDirective(String),
    /// An item of a list lacks the field that tells items apart.
    NoMergeKey {
        /// The item.
        item: Value,
        /// The field.
        key: String,
    },
}

/// Merges a patch into an object of a struct of the schema.
pub(super) fn merge(object: &mut Value, patch: Value, structure: Option<usize>) -> Result<(), Fault> {
    if let (Value::Object(original), Value::Object(patch)) = (object, patch) {
        *original = merge_map(std::mem::take(original), patch, structure)?;
    }
    Ok(())
}

fn merge_map(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    structure: Option<usize>,
) -> Result<Map<String, Value>, Fault> {
    match patch.remove(PATCH) {
        None => {}
        Some(directive) => match directive.as_str() {
            Some("replace") => return Ok(patch),
            Some("delete") => return Ok(Map::new()),
            Some("merge") => {}
            _ => {
                let other = directive.as_str().map_or_else(|| directive.to_string(), str::to_owned);
                return Err(Fault::UnknownDirective(other));
            }
        },
    }
    if let Some(Value::Array(kept)) = patch.remove(RETAIN_KEYS) {
        original.retain(|key, _| kept.iter().any(|kept| kept == key));
    }
    let orders = take_prefixed(&mut patch, ORDER);
    for (name, deleted) in take_prefixed(&mut patch, DELETE_FROM) {
        if let Some(Value::Array(items)) = original.get_mut(&name) {
            items.retain(|item| !deleted.contains(item));
        }
    }
    let ordered_only: Vec<String> =
        orders.iter().map(|(name, _)| name.clone()).filter(|name| !patch.contains_key(name)).collect();
    for (name, value) in patch {
        let field = structure.and_then(|index| Schema::get().structure(index).fields.get(&name));
        let order = orders.iter().find(|(ordered, _)| *ordered == name).map(|(_, order)| order.as_slice());
        merge_field(&mut original, name, value, field, order)?;
    }
    for name in ordered_only {
        let field = structure.and_then(|index| Schema::get().structure(index).fields.get(&name));
        let order = orders.iter().find(|(ordered, _)| *ordered == name).map(|(_, order)| order.as_slice());
        if let (Some(Value::Array(items)), Some(order)) = (original.get_mut(&name), order) {
            let server_order = items.clone();
            let key = field.and_then(|field| field.merge_key.as_deref());
            *items = put_in_order(std::mem::take(items), order, &server_order, key);
        }
    }
    Ok(original)
}

/// Takes the directives `PREFIX/FIELD: [..]` out of a patch.
fn take_prefixed(patch: &mut Map<String, Value>, prefix: &str) -> Vec<(String, Vec<Value>)> {
    let names: Vec<String> = patch.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
    names
        .into_iter()
        .filter_map(|key| match patch.remove(&key) {
            Some(Value::Array(items)) => Some((key[prefix.len()..].to_owned(), items)),
            _ => None,
        })
        .collect()
}

fn merge_field(
    original: &mut Map<String, Value>,
    name: String,
    value: Value,
    field: Option<&Field>,
    order: Option<&[Value]>,
) -> Result<(), Fault> {
    let inner = field.and_then(|field| inner_struct(&field.shape));
    match (original.get_mut(&name), value) {
        (_, Value::Null) => {
            original.remove(&name);
        }
        (Some(Value::Object(old)), Value::Object(new)) => {
            *old = merge_map(std::mem::take(old), new, inner)?;
        }
        (Some(Value::Array(old)), Value::Array(new)) if field.is_some_and(|field| field.merge) => {
            let key = field.and_then(|field| field.merge_key.as_deref());
            let server_order = old.clone();
            let patch_order: Vec<Value> =
                new.iter().filter(|item| item.get(PATCH).is_none()).cloned().collect();
            let merged = match key {
                Some(key) => merge_objects(std::mem::take(old), new, key, inner)?,
                None => merge_values(std::mem::take(old), new),
            };
            // Without an order of its own, that of the patch counts.
            *old = put_in_order(merged, order.unwrap_or(&patch_order), &server_order, key);
        }
        (_, new) => {
            if let Some(value) = without_directives(new) {
                original.insert(name, value);
            }
        }
    }
    Ok(())
}

/// A value that meets nothing to be merged with: what carries a directive vanishes, as do nulls.
fn without_directives(value: Value) -> Option<Value> {
    Some(match value {
        Value::Object(fields) if fields.contains_key(PATCH) => return None,
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.filter_map(|(name, value)| Some((name, without_directives(value)?))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().filter_map(without_directives).collect()),
        other => other,
    })
}

fn inner_struct(shape: &Shape) -> Option<usize> {
    match shape {
        Shape::Struct(index) => Some(*index),
        Shape::Pointer(inner) | Shape::List(inner) => inner_struct(inner),
        _ => None,
    }
}

/// Lists of plain values are sets.
fn merge_values(mut old: Vec<Value>, new: Vec<Value>) -> Vec<Value> {
    for value in new {
        if !old.contains(&value) {
            old.push(value);
        }
    }
    old
}

fn merge_objects(
    mut old: Vec<Value>,
    new: Vec<Value>,
    key: &str,
    structure: Option<usize>,
) -> Result<Vec<Value>, Fault> {
    if new.iter().any(|item| item.get(PATCH).is_some_and(|directive| directive == "replace")) {
        let kept = new.into_iter().filter(|item| item.get(PATCH).is_none());
        return Ok(kept.collect());
    }
    for item in new {
        let Some(wanted) = item.get(key).cloned() else {
            return Err(Fault::NoMergeKey { item, key: key.to_owned() });
        };
        let place = old.iter().position(|item| item.get(key) == Some(&wanted));
        if item.get(PATCH).is_some_and(|directive| directive == "delete") {
            old.retain(|item| item.get(key) != Some(&wanted));
        } else if let Some(place) = place {
            merge(&mut old[place], item, structure)?;
        } else {
            old.extend(without_directives(item));
        }
    }
    Ok(old)
}

/// Orders a merged list: what the patch lists as it says, and what only the server has where it was relative
/// to that.
fn put_in_order(
    merged: Vec<Value>,
    order: &[Value],
    server_order: &[Value],
    key: Option<&str>,
) -> Vec<Value> {
    let same = |left: &Value, right: &Value| match key {
        Some(key) => left.get(key) == right.get(key),
        None => left == right,
    };
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut listed, server_only): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(order, item).is_some());
    listed.sort_by_key(|item| place(order, item));
    let mut server_only = server_only.into_iter().peekable();
    let mut ordered = Vec::new();
    for item in listed {
        let at = place(server_order, &item);
        while let Some(server) = server_only
            .next_if(|server| at.is_some() && place(server_order, server).is_some_and(|p| Some(p) < at))
        {
            ordered.push(server);
        }
        ordered.push(item);
    }
    ordered.extend(server_only);
    ordered
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(kind: &str, mut object: Value, patch: Value, expected: Value) {
        merge(&mut object, patch, Schema::get().kind("v1", kind)).unwrap();
        assert_eq!(object, expected);
    }

    #[test]
    fn finalizers_are_a_set() {
        check(
            "PersistentVolume",
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"finalizers": ["b", "c"]}}),
            json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
        );
        check(
            "PersistentVolume",
            json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
            json!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["c", "b"],
            }}),
            json!({"metadata": {"finalizers": ["c", "b"]}}),
        );
    }

    #[test]
    fn access_modes_are_replaced() {
        check(
            "PersistentVolume",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}}),
            json!({"spec": {"accessModes": ["ReadOnlyMany"], "capacity": null}}),
            json!({"spec": {"accessModes": ["ReadOnlyMany"]}}),
        );
    }

    #[test]
    fn containers_are_told_apart_by_name() {
        check(
            "Pod",
            json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}, {"name": "c"}]}}),
            json!({"spec": {
                "$setElementOrder/containers": [{"name": "d"}, {"name": "a"}, {"name": "c"}],
                "containers": [{"name": "a", "image": "2"}, {"name": "b", "$patch": "delete"}, {"name": "d"}],
            }}),
            json!({"spec": {"containers": [{"name": "d"}, {"name": "a", "image": "2"}, {"name": "c"}]}}),
        );
    }

    #[test]
    fn owner_references_are_told_apart_by_uid() {
        check(
            "PersistentVolumeClaim",
            json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]}}),
            json!({"metadata": {"ownerReferences": [{"uid": "2", "name": "b"}, {"uid": "1", "kind": "Pod"}]}}),
            json!({"metadata": {"ownerReferences": [
                {"uid": "2", "name": "b"}, {"uid": "1", "name": "a", "kind": "Pod"},
            ]}}),
        );
    }

    #[test]
    fn directives() {
        check(
            "PersistentVolume",
            json!({"spec": {"claimRef": {"name": "a", "uid": "1"}, "nodeAffinity": {"required": {}}}}),
            json!({"spec": {
                "claimRef": {"$patch": "replace", "name": "b"},
                "nodeAffinity": {"$retainKeys": ["other"], "other": 1},
            }}),
            json!({"spec": {"claimRef": {"name": "b"}, "nodeAffinity": {"other": 1}}}),
        );
        let mut object = json!({"spec": {}});
        assert!(merge(&mut object, json!({"$patch": "explode"}), None).is_err());
    }

    #[test]
    fn a_list_item_without_its_key_is_refused() {
        let mut object = json!({"spec": {"containers": [{"name": "a"}]}});
        let patch = json!({"spec": {"containers": [{"image": "x"}]}});
        let error = merge(&mut object, patch, Schema::get().kind("v1", "Pod")).unwrap_err();
        assert!(matches!(error, Fault::NoMergeKey { ref key, .. } if key == "name"), "{error:?}");
    }
}
