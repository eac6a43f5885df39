//! JSON patches, as `evanphx/json-patch` v4 applies them, which is more lenient than RFC 6902.
//!
//! A missing member of an object can be replaced, copied (as null) and tested (against null), and negative
//! indices count from the end of a list.

use serde_json::{Map, Value};

use crate::object::json_bytes;

/// The most bytes that the operations of one patch may copy, as on the real server
/// (`JSONPatchMaxCopyBytes`): copies of copies would double a document with each operation.
pub(super) const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Why a patch is refused.
pub(super) enum Fault {
    DoesNotApply,
    CopiesTooMuch,
}

/// Applies the operations in order.
pub(super) fn apply(document: &mut Value, operations: &[Map<String, Value>]) -> Result<(), Fault> {
    let mut copied = 0;
    for operation in operations {
        let applied = one(document, operation, &mut copied);
        if copied > COPIED_BYTES_MAX {
            return Err(Fault::CopiesTooMuch);
        }
        applied.ok_or(Fault::DoesNotApply)?;
    }
    Ok(())
}

/// Applies an operation, and adds the bytes of what it copies. Copies nothing beyond the bound.
fn one(document: &mut Value, operation: &Map<String, Value>, copied: &mut usize) -> Option<()> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let path = text("path")?;
    let value = operation.get("value").unwrap_or(&Value::Null);
    match text("op")? {
        "add" => add(document, path, value.clone()),
        "remove" => remove(document, path),
        "replace" => replace(document, path, value.clone()),
        "move" => {
            let moved = get(document, text("from")?)?.clone();
            remove(document, text("from")?)?;
            add(document, path, moved)
        }
        "copy" => {
            let source = get(document, text("from")?)?;
            *copied += json_bytes(source);
            let copy = (*copied <= COPIED_BYTES_MAX).then(|| source.clone())?;
            add(document, path, copy)
        }
        "test" if path.is_empty() => (document == value).then_some(()),
        "test" => (get(document, path)? == value).then_some(()),
        _ => None,
    }
}

/// The object or list that holds the target of a path, and the last part of the path.
fn container<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parents, last) = path.rsplit_once('/')?;
    let mut place = document;
    // Text before the first slash is ignored.
    for part in parents.split('/').skip(1) {
        place = match place {
            Value::Object(fields) => fields.get_mut(&unescape(part))?,
            Value::Array(items) => {
                let index = index(&unescape(part), items.len())?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    (place.is_object() || place.is_array()).then(|| (place, unescape(last)))
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// An index below `places`; a negative number counts from the end.
fn index(text: &str, places: usize) -> Option<usize> {
    let number: i64 = text.parse().ok()?;
    let index = if number < 0 { number.checked_add(i64::try_from(places).ok()?)? } else { number };
    usize::try_from(index).ok().filter(|index| *index < places)
}

/// A value; null for a missing member of an object.
fn get<'a>(document: &'a mut Value, path: &str) -> Option<&'a Value> {
    match container(document, path)? {
        (Value::Object(fields), name) => Some(fields.get(&name).unwrap_or(&Value::Null)),
        (Value::Array(items), name) => items.get(index(&name, items.len())?),
        _ => None,
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Option<()> {
    match container(document, path)? {
        (Value::Object(fields), name) => {
            fields.insert(name, value);
        }
        (Value::Array(items), name) if name == "-" => items.push(value),
        (Value::Array(items), name) => {
            let index = index(&name, items.len() + 1)?;
            items.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &str) -> Option<()> {
    match container(document, path)? {
        (Value::Object(fields), name) => fields.remove(&name).map(drop),
        (Value::Array(items), name) => {
            let index = index(&name, items.len())?;
            items.remove(index);
            Some(())
        }
        _ => None,
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *document = Some(value).filter(|value| value.is_object() || value.is_array())?;
        return Some(());
    }
    match container(document, path)? {
        (Value::Object(fields), name) => {
            fields.insert(name, value);
        }
        (Value::Array(items), name) => {
            let index = index(&name, items.len())?;
            items[index] = value;
        }
        _ => return None,
    }
    Some(())
}
