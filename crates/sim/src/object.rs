//! Reading and writing common places of an object.

use serde_json::{Map, Value};

/// The text at a JSON pointer; empty where there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// The name.
pub(crate) fn name(object: &Value) -> &str {
    meta_text(object, "name")
}

/// The namespace; empty for cluster-scoped objects.
pub(crate) fn namespace(object: &Value) -> &str {
    meta_text(object, "namespace")
}

/// The UID.
pub(crate) fn uid(object: &Value) -> &str {
    meta_text(object, "uid")
}

/// The resourceVersion.
pub(crate) fn resource_version(object: &Value) -> &str {
    meta_text(object, "resourceVersion")
}

/// A text field of the metadata; empty where there is none.
pub(crate) fn meta_text<'a>(object: &'a Value, field: &str) -> &'a str {
    meta_field(object, field).and_then(Value::as_str).unwrap_or("")
}

/// A field of the metadata.
pub(crate) fn meta_field<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(field)
}

/// Whether somebody has asked for deletion.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !meta_text(object, "deletionTimestamp").is_empty()
}

/// The finalizers.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    texts(meta_field(object, "finalizers"))
}

/// The texts of a list.
pub(crate) fn texts(list: Option<&Value>) -> Vec<&str> {
    list.and_then(Value::as_array)
        .map(|items| items.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// The items of a list.
pub(crate) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The metadata, made where it is missing.
pub(crate) fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_mut(object, "metadata")
}

/// A child object, made where it is missing or not an object.
pub(crate) fn child_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let child = &mut object[field];
    if !child.is_object() {
        *child = Value::Object(Map::new());
    }
    child.as_object_mut().expect("just made an object")
}

/// Sets or, with `None`, removes a field.
pub(crate) fn set(object: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => {
            object.insert(field.to_owned(), value);
        }
        None => {
            object.remove(field);
        }
    }
}

/// Copies a top-level field of one object over another's, its absence included.
pub(crate) fn copy_field(from: &Value, to: &mut Value, field: &str) {
    if let Some(target) = to.as_object_mut() {
        set(target, field, from.get(field).cloned());
    }
}

/// Whether a value is what Go counts as empty: absent, null, `""`, 0, false, an empty list or map.
pub(crate) fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Bool(flag)) => !flag,
        Some(Value::Number(number)) => number.as_f64() == Some(0.0),
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(fields)) => fields.is_empty(),
    }
}
