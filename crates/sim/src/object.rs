//! Reading and writing the common fields of an object.

use serde_json::{Map, Value};

/// The annotation that named a class before the field did.
pub(crate) const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// The annotations that mark a default class.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// The text at a JSON pointer, or "".
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

pub(crate) fn name(object: &Value) -> &str {
    meta_text(object, "name")
}

/// The namespace, or "" for cluster-scoped objects.
pub(crate) fn namespace(object: &Value) -> &str {
    meta_text(object, "namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    meta_text(object, "uid")
}

pub(crate) fn resource_version(object: &Value) -> &str {
    meta_text(object, "resourceVersion")
}

/// A text field of the metadata, or "".
pub(crate) fn meta_text<'a>(object: &'a Value, field: &str) -> &'a str {
    meta_field(object, field).and_then(Value::as_str).unwrap_or("")
}

/// A field of the metadata.
pub(crate) fn meta_field<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(field)
}

/// An annotation.
pub(crate) fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    meta_field(object, "annotations")?.get(name)?.as_str()
}

/// The class of a volume or claim: the annotation takes precedence over the field.
pub(crate) fn class(object: &Value) -> &str {
    annotation(object, CLASS_ANNOTATION).unwrap_or_else(|| text(object, "/spec/storageClassName"))
}

/// Whether a storage class is a default one.
pub(crate) fn is_default_class(class: &Value) -> bool {
    DEFAULT_CLASS.iter().any(|name| annotation(class, name) == Some("true"))
}

/// A number of the metadata, or 0.
pub(crate) fn meta_number(object: &Value, field: &str) -> i64 {
    meta_field(object, field).and_then(Value::as_i64).unwrap_or(0)
}

/// A number of an object, or 0.
pub(crate) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// Whether deletion was requested.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !meta_text(object, "deletionTimestamp").is_empty()
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    texts(meta_field(object, "finalizers"))
}

pub(crate) fn texts(list: Option<&Value>) -> Vec<&str> {
    list.and_then(Value::as_array)
        .map(|items| items.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

pub(crate) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The metadata, added if it is missing.
pub(crate) fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_mut(object, "metadata")
}

/// A child object, added if it is missing or not an object.
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

/// Copies a top-level field from one object to another; an absent field is removed.
pub(crate) fn copy_field(from: &Value, to: &mut Value, field: &str) {
    if let Some(target) = to.as_object_mut() {
        set(target, field, from.get(field).cloned());
    }
}

/// Whether Go counts a value as empty: absent, null, `""`, 0, false, an empty list or map.
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

/// Bytes of memory that a value takes, without those that the allocator adds.
pub(crate) fn held_bytes(value: &Value) -> usize {
    let field = |(name, value): (&String, &Value)| size_of::<String>() + name.len() + held_bytes(value);
    let content = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(held_bytes).sum(),
        Value::Object(fields) => fields.iter().map(field).sum(),
    };
    size_of::<Value>() + content
}

/// Bytes of a value as JSON.
pub(crate) fn json_bytes(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
            self.0 += piece.len();
            Ok(piece.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}
