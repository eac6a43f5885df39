//! Strategic merge patch, as in `apimachinery/pkg/util/strategicpatch`.
//!
//! Maps are merged field by field. Lists whose Go field has the patch strategy `merge` are merged too: lists
//! of objects by their merge key, lists of plain values as sets. The directives `$patch`, `$retainKeys`,
//! `$deleteFromPrimitiveList/…` and `$setElementOrder/…` express other changes.

use serde_json::{Map, Value};

use crate::schema::{Field, Schema, Shape};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// The reason why a patch cannot be merged.
#[derive(Debug)]
pub(super) enum Fault {
    /// The value of `$patch`, if it is not merge, replace or delete.
    UnknownDirective(String),
    /// An item of a list lacks the merge key.
    NoMergeKey { item: Value, key: String },
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
    if let Some(directive) = patch.remove(PATCH) {
        match directive.as_str() {
            Some("replace") => return Ok(patch),
            Some("delete") => return Ok(Map::new()),
            Some("merge") => {}
            Some(other) => return Err(Fault::UnknownDirective(other.to_owned())),
            None => return Err(Fault::UnknownDirective(directive.to_string())),
        }
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
    let field = |name: &str| structure.and_then(|index| Schema::get().structure(index).fields.get(name));
    // Lists that the patch orders and does not change.
    for (name, order) in orders.iter().filter(|(name, _)| !patch.contains_key(name)) {
        if let Some(Value::Array(items)) = original.get_mut(name) {
            let server_order = items.clone();
            let key = field(name).and_then(|field| field.merge_key.as_deref());
            *items = put_in_order(std::mem::take(items), order, &server_order, key);
        }
    }
    for (name, value) in patch {
        let order = orders.iter().find(|(ordered, _)| *ordered == name).map(|(_, order)| order.as_slice());
        let field = field(&name);
        merge_field(&mut original, name, value, field, order)?;
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
            // Without a directive, the patch's own order counts.
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

/// A value that is added, not merged: objects with a directive and nulls are dropped.
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

/// Merges lists of plain values, as sets.
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

/// Orders a merged list: items in `order` as listed there, and other items at their place in the server's
/// order relative to these.
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
        let is_before = |server: &Value| place(server_order, server).is_some_and(|place| Some(place) < at);
        while let Some(server) = server_only.next_if(is_before) {
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
    fn a_patch_of_finalizers_merges_them_as_a_set() {
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
    fn a_patch_of_access_modes_replaces_them() {
        check(
            "PersistentVolume",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}}),
            json!({"spec": {"accessModes": ["ReadOnlyMany"], "capacity": null}}),
            json!({"spec": {"accessModes": ["ReadOnlyMany"]}}),
        );
    }

    #[test]
    fn a_patch_of_containers_merges_them_by_name() {
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
    fn a_patch_of_owner_references_merges_them_by_uid() {
        check(
            "PersistentVolumeClaim",
            json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]}}),
            json!({"metadata": {"ownerReferences": [
                {"uid": "2", "name": "b"}, {"uid": "1", "kind": "Pod"},
            ]}}),
            json!({"metadata": {"ownerReferences": [
                {"uid": "2", "name": "b"}, {"uid": "1", "name": "a", "kind": "Pod"},
            ]}}),
        );
    }

    #[test]
    fn directives_replace_objects_and_retain_keys() {
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
