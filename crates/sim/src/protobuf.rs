//! Bodies in Kubernetes' protobuf encoding, which typed clients (`kubectl create namespace`) send by default.
//!
//! A body is the bytes `k8s\0` and a `runtime.Unknown` with the kind and the object's message. The field
//! numbers are those of the Go types (see [`crate::schema`]). Answers are always JSON, which every client
//! accepts.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use crate::clock;
use crate::schema::{Schema, Shape};

const MAGIC: &[u8] = b"k8s\0";

/// The encoded value of a field.
enum Encoded<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Reads a body. `None` if it is malformed or its kind is unknown.
pub(crate) fn read(body: &[u8]) -> Option<Value> {
    let (mut api_version, mut kind, mut raw) = ("", "", &[][..]);
    for (number, encoded) in fields(body.strip_prefix(MAGIC)?)? {
        match (number, encoded) {
            (1, Encoded::Bytes(type_meta)) => {
                for (number, encoded) in fields(type_meta)? {
                    match (number, encoded) {
                        (1, Encoded::Bytes(bytes)) => api_version = std::str::from_utf8(bytes).ok()?,
                        (2, Encoded::Bytes(bytes)) => kind = std::str::from_utf8(bytes).ok()?,
                        _ => {}
                    }
                }
            }
            (2, Encoded::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    // Clients send DeleteOptions with the version of the object.
    let structure = Schema::get().kind(api_version, kind).or_else(|| Schema::get().kind("v1", kind))?;
    let mut object = message(structure, raw)?;
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    Some(object)
}

/// Splits a message into its fields.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Encoded<'_>)>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let encoded = match tag & 7 {
            0 => Encoded::Number(varint(&mut bytes)?),
            1 => Encoded::Number(u64::from_le_bytes(take(&mut bytes, 8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                Encoded::Bytes(take(&mut bytes, length)?)
            }
            5 => Encoded::Number(u64::from(u32::from_le_bytes(take(&mut bytes, 4)?.try_into().ok()?))),
            _ => return None,
        };
        found.push((tag >> 3, encoded));
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

/// Reads the fields of a message. `path` is its place in the outer message if JSON inlines it (`2/`).
fn nested(structure: usize, path: &str, bytes: &[u8], object: &mut Map<String, Value>) -> Option<()> {
    let known = &Schema::get().structure(structure).fields;
    for (number, encoded) in fields(bytes)? {
        let place = format!("{path}{number}");
        if let Some((name, field)) = known.iter().find(|(_, field)| field.number == place) {
            value(&field.shape, &encoded, object.entry(name.as_str()).or_insert(Value::Null))?;
        } else if let Encoded::Bytes(bytes) = encoded {
            let inner = format!("{place}/");
            if known.values().any(|field| field.number.starts_with(&inner)) {
                nested(structure, &inner, bytes, object)?;
            }
        }
    }
    Some(())
}

/// Adds one occurrence of a field to the value of earlier occurrences.
fn value(shape: &Shape, encoded: &Encoded<'_>, into: &mut Value) -> Option<()> {
    match (shape, encoded) {
        (Shape::Pointer(inner), encoded) => return value(inner, encoded, into),
        (Shape::List(inner), encoded) => {
            let mut item = Value::Null;
            value(inner, encoded, &mut item)?;
            match into {
                Value::Array(items) => items.push(item),
                other => *other = Value::Array(vec![item]),
            }
        }
        (Shape::Map(inner), Encoded::Bytes(entry)) => {
            let (mut key, mut item) = (String::new(), empty(inner));
            for (number, encoded) in fields(entry)? {
                match (number, &encoded) {
                    (1, Encoded::Bytes(bytes)) => key = text(bytes)?,
                    (2, encoded) => value(inner, encoded, &mut item)?,
                    _ => {}
                }
            }
            if !into.is_object() {
                *into = json!({});
            }
            into[key] = item;
        }
        (Shape::Struct(index), Encoded::Bytes(bytes)) => *into = message(*index, bytes)?,
        (Shape::String, Encoded::Bytes(bytes)) => *into = text(bytes)?.into(),
        (Shape::Bytes, Encoded::Bytes(bytes)) => *into = BASE64_STANDARD.encode(bytes).into(),
        (Shape::Bool, Encoded::Number(number)) => *into = (*number != 0).into(),
        (Shape::Int, Encoded::Number(number)) => *into = number.cast_signed().into(),
        (Shape::Float, Encoded::Number(number)) => *into = f64::from_bits(*number).into(),
        (Shape::Quantity | Shape::Any, Encoded::Bytes(bytes)) => *into = inner_text(bytes)?,
        (Shape::Time, Encoded::Bytes(bytes)) => *into = clock::seconds_text(timestamp(bytes)?).into(),
        (Shape::MicroTime, Encoded::Bytes(bytes)) => *into = clock::micros_text(timestamp(bytes)?).into(),
        (Shape::IntOrString, Encoded::Bytes(bytes)) => *into = int_or_string(bytes)?,
        _ => return None,
    }
    Some(())
}

/// The value of a map entry without a value.
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

/// Quantities and raw JSON are messages with one field.
fn inner_text(bytes: &[u8]) -> Option<Value> {
    for (number, encoded) in fields(bytes)? {
        if let (1, Encoded::Bytes(bytes)) = (number, encoded) {
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
    for (number, encoded) in fields(bytes)? {
        match (number, encoded) {
            (1, Encoded::Number(number)) => seconds = number.cast_signed(),
            (2, Encoded::Number(number)) => nanos = i32::try_from(number).ok()?,
            _ => {}
        }
    }
    jiff::Timestamp::new(seconds, nanos).ok()
}

fn int_or_string(bytes: &[u8]) -> Option<Value> {
    let (mut is_text, mut number_value, mut text_value) = (false, 0_i64, String::new());
    for (number, encoded) in fields(bytes)? {
        match (number, encoded) {
            (1, Encoded::Number(kind)) => is_text = kind == 1,
            (2, Encoded::Number(number)) => number_value = number.cast_signed(),
            (3, Encoded::Bytes(bytes)) => text_value = text(bytes)?,
            _ => {}
        }
    }
    Some(if is_text { text_value.into() } else { number_value.into() })
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
    fn a_config_map_with_binary_data_is_decoded() {
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
    fn a_volume_source_is_decoded_inline() {
        let capacity = [field(1, b"storage"), field(2, &field(1, b"1Gi"))].concat();
        let source = field(3, &field(1, b"/srv"));
        let spec = [field(1, &capacity), field(2, &source), field(3, b"ReadWriteOnce")].concat();
        let volume = read(&unknown("PersistentVolume", &field(2, &spec))).unwrap();
        let expected = json!({
            "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/srv"}, "accessModes": ["ReadWriteOnce"],
        });
        assert_eq!(volume["spec"], expected);
    }

    #[test]
    fn malformed_bodies_and_unknown_kinds_are_refused() {
        assert_eq!(read(b"{}"), None);
        assert_eq!(read(b"k8s\0\xff"), None);
        assert_eq!(read(&unknown("Nonsense", b"")), None);
    }
}
