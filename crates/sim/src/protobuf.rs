//! Bodies in Kubernetes' protobuf form, which typed clients (`kubectl create namespace`) send unasked.
//!
//! A body is the bytes `k8s\0` and a `runtime.Unknown` that names the kind and holds the object's message.
//! Messages are read by the numbers that the Go types carry (see [`crate::schema`]). Answers are always JSON,
//! which every client takes.

use serde_json::{Map, Value, json};

use crate::clock;
use crate::schema::{Schema, Shape};

const MAGIC: &[u8] = b"k8s\0";

/// A field on the wire.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Reads a body; `None` where it is malformed or of an unknown kind.
pub(crate) fn read(body: &[u8]) -> Option<Value> {
    let (mut api_version, mut kind, mut raw) = ("", "", &[][..]);
    for (number, wire) in fields(body.strip_prefix(MAGIC)?)? {
        match (number, wire) {
            (1, Wire::Bytes(type_meta)) => {
                for (number, wire) in fields(type_meta)? {
                    match (number, wire) {
                        (1, Wire::Bytes(bytes)) => api_version = std::str::from_utf8(bytes).ok()?,
                        (2, Wire::Bytes(bytes)) => kind = std::str::from_utf8(bytes).ok()?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    // Options are sent under the version of the object that they are for.
    let structure = Schema::get().kind(api_version, kind).or_else(|| Schema::get().kind("v1", kind))?;
    let mut object = message(structure, raw)?;
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    Some(object)
}

/// Splits a message into its fields.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let wire = match tag & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            1 => Wire::Number(u64::from_le_bytes(take(&mut bytes, 8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                Wire::Bytes(take(&mut bytes, length)?)
            }
            5 => Wire::Number(u64::from(u32::from_le_bytes(take(&mut bytes, 4)?.try_into().ok()?))),
            _ => return None,
        };
        found.push((tag >> 3, wire));
    }
    Some(found)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(length)?;
    *bytes = tail;
    Some(head)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn message(structure: usize, bytes: &[u8]) -> Option<Value> {
    let mut object = Map::new();
    nested(structure, "", bytes, &mut object)?;
    Some(Value::Object(object))
}

/// Reads the fields of a message whose place in the outer one is `path` (`2/` for what JSON inlines).
fn nested(structure: usize, path: &str, bytes: &[u8], object: &mut Map<String, Value>) -> Option<()> {
    let known = &Schema::get().structure(structure).fields;
    for (number, wire) in fields(bytes)? {
        let place = format!("{path}{number}");
        if let Some((name, field)) = known.iter().find(|(_, field)| field.number == place) {
            value(&field.shape, &wire, object.entry(name.as_str()).or_insert(Value::Null))?;
        } else if let Wire::Bytes(bytes) = wire {
            let inner = format!("{place}/");
            if known.values().any(|field| field.number.starts_with(&inner)) {
                nested(structure, &inner, bytes, object)?;
            }
        }
    }
    Some(())
}

/// Reads one occurrence of a field into what earlier ones have left.
fn value(shape: &Shape, wire: &Wire<'_>, into: &mut Value) -> Option<()> {
    match (shape, wire) {
        (Shape::Pointer(inner), wire) => return value(inner, wire, into),
        (Shape::List(inner), wire) => {
            let mut item = Value::Null;
            value(inner, wire, &mut item)?;
            match into {
                Value::Array(items) => items.push(item),
                other => *other = Value::Array(vec![item]),
            }
        }
        (Shape::Map(inner), Wire::Bytes(entry)) => {
            let (mut key, mut item) = (String::new(), empty(inner));
            for (number, wire) in fields(entry)? {
                match (number, &wire) {
                    (1, Wire::Bytes(bytes)) => key = text(bytes)?,
                    (2, wire) => value(inner, wire, &mut item)?,
                    _ => {}
                }
            }
            if !into.is_object() {
                *into = json!({});
            }
            into[key] = item;
        }
        (Shape::Struct(index), Wire::Bytes(bytes)) => *into = message(*index, bytes)?,
        (Shape::String, Wire::Bytes(bytes)) => *into = text(bytes)?.into(),
        (Shape::Bytes, Wire::Bytes(bytes)) => *into = base64(bytes).into(),
        (Shape::Bool, Wire::Number(number)) => *into = (*number != 0).into(),
        (Shape::Int, Wire::Number(number)) => *into = number.cast_signed().into(),
        (Shape::Float, Wire::Number(number)) => *into = f64::from_bits(*number).into(),
        (Shape::Quantity | Shape::Any, Wire::Bytes(bytes)) => *into = inner_text(bytes)?,
        (Shape::Time, Wire::Bytes(bytes)) => *into = clock::seconds_text(timestamp(bytes)?).into(),
        (Shape::MicroTime, Wire::Bytes(bytes)) => *into = clock::micros_text(timestamp(bytes)?).into(),
        (Shape::IntOrString, Wire::Bytes(bytes)) => *into = int_or_string(bytes)?,
        _ => return None,
    }
    Some(())
}

/// A map's value that is not on the wire is empty.
fn empty(shape: &Shape) -> Value {
    match shape {
        Shape::String | Shape::Bytes => "".into(),
        Shape::Quantity => "0".into(),
        _ => Value::Null,
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

/// Quantities, and JSON kept as it is, are messages with one field.
fn inner_text(bytes: &[u8]) -> Option<Value> {
    for (number, wire) in fields(bytes)? {
        if let (1, Wire::Bytes(bytes)) = (number, wire) {
            let text = text(bytes)?;
            return Some(
                serde_json::from_str(&text).ok().filter(Value::is_object).unwrap_or(Value::String(text)),
            );
        }
    }
    Some(Value::Null)
}

fn timestamp(bytes: &[u8]) -> Option<jiff::Timestamp> {
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    for (number, wire) in fields(bytes)? {
        match (number, wire) {
            (1, Wire::Number(number)) => seconds = number.cast_signed(),
            (2, Wire::Number(number)) => nanos = i32::try_from(number).ok()?,
            _ => {}
        }
    }
    jiff::Timestamp::new(seconds, nanos).ok()
}

fn int_or_string(bytes: &[u8]) -> Option<Value> {
    let (mut is_text, mut number_value, mut text_value) = (false, 0_i64, String::new());
    for (number, wire) in fields(bytes)? {
        match (number, wire) {
            (1, Wire::Number(kind)) => is_text = kind == 1,
            (2, Wire::Number(number)) => number_value = number.cast_signed(),
            (3, Wire::Bytes(bytes)) => text_value = text(bytes)?,
            _ => {}
        }
    }
    Some(if is_text { text_value.into() } else { number_value.into() })
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, byte| (group << 8) | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let index = (group >> (18 - 6 * place)) & 63;
            text.push(if place <= chunk.len() { char::from(LETTERS[index as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        field.extend(bytes);
        field
    }

    fn unknown(kind: &str, message: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &type_meta), field(2, message)].concat()
    }

    #[test]
    fn a_config_map() {
        let metadata = [field(1, b"settings"), field(3, b"default")].concat();
        let data = [field(1, b"key"), field(2, b"value")].concat();
        let binary = [field(1, b"raw"), field(2, b"\x00\x01\x02\x03")].concat();
        let message = [field(1, &metadata), field(2, &data), field(3, &binary)].concat();
        let expected = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "settings", "namespace": "default"},
            "data": {"key": "value"}, "binaryData": {"raw": "AAECAw=="},
        });
        assert_eq!(read(&unknown("ConfigMap", &message)), Some(expected));
    }

    #[test]
    fn a_volume_whose_source_is_inlined_in_json() {
        let capacity = [field(1, b"storage"), field(2, &field(1, b"1Gi"))].concat();
        let source = field(3, &field(1, b"/srv"));
        let spec = [field(1, &capacity), field(2, &source), field(3, b"ReadWriteOnce")].concat();
        let volume = read(&unknown("PersistentVolume", &field(2, &spec))).unwrap();
        let expected = json!({"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/srv"}, "accessModes": ["ReadWriteOnce"]});
        assert_eq!(volume["spec"], expected);
    }

    #[test]
    fn what_is_no_protobuf() {
        assert_eq!(read(b"{}"), None);
        assert_eq!(read(b"k8s\0\xff"), None);
        assert_eq!(read(&unknown("Nonsense", b"")), None);
    }

    #[test]
    fn base64_of_each_length() {
        assert_eq!([base64(b"a"), base64(b"ab"), base64(b"abc")], ["YQ==", "YWI=", "YWJj"]);
    }
}
