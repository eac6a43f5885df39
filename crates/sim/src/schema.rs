//! The Go types of the served kinds, and decoding by them.
//!
//! The real server decodes JSON into Go types and encodes them again: it drops unknown fields, omits or adds
//! empty values by the tags of the type, and writes quantities and times in canonical form.
//! `data/schema.json`, which `data/schema` generates from the Go types, has the information to do the same.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::clock;
use crate::quantity::Quantity;

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    String,
    Bool,
    Int,
    Float,
    Quantity,
    Time,
    MicroTime,
    IntOrString,
    Bytes,
    Any,
    Pointer(Box<Shape>),
    List(Box<Shape>),
    Map(Box<Shape>),
    /// Index of a struct in [`Schema::structs`].
    Struct(usize),
}

/// When an empty value is omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Omit {
    Never,
    /// Go's omitempty: empty values except structs.
    Empty,
    /// Go's omitzero: empty values including structs.
    Zero,
}

/// One field of a struct.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) shape: Shape,
    go_type: String,
    omit: Omit,
    /// Whether lists are merged by a strategic merge patch.
    pub(crate) merge: bool,
    /// The field that identifies the items of a merged list; `None` for lists of plain values.
    pub(crate) merge_key: Option<String>,
    /// The field number in protobuf, or "". A path (`2/1`) if JSON inlines a nested message.
    pub(crate) number: String,
}

/// One struct.
#[derive(Debug)]
pub(crate) struct Struct {
    name: String,
    pub(crate) fields: BTreeMap<String, Field>,
}

/// All structs, and the struct of each kind.
#[derive(Debug)]
pub(crate) struct Schema {
    kinds: HashMap<String, usize>,
    structs: Vec<Struct>,
}

#[derive(Deserialize)]
struct Raw {
    kinds: HashMap<String, String>,
    types: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let raw: Raw =
        serde_json::from_str(include_str!("../data/schema.json")).expect("the schema is generated JSON");
    Schema::compile(raw)
});

impl Schema {
    /// The schema of all served kinds.
    pub(crate) fn get() -> &'static Schema {
        &SCHEMA
    }

    fn compile(raw: Raw) -> Schema {
        let index: HashMap<&str, usize> =
            raw.types.keys().enumerate().map(|(index, name)| (name.as_str(), index)).collect();
        let kinds = raw.kinds.iter().map(|(kind, name)| (kind.clone(), index[name.as_str()])).collect();
        let structs = raw
            .types
            .iter()
            .map(|(name, fields)| Struct {
                name: name.rsplit('.').next().unwrap_or(name).to_owned(),
                fields: fields.iter().map(|(name, raw)| (name.clone(), field(raw, &index))).collect(),
            })
            .collect();
        Schema { kinds, structs }
    }

    /// The struct of a kind, by `apiVersion/kind`.
    pub(crate) fn kind(&self, api_version: &str, kind: &str) -> Option<usize> {
        self.kinds.get(&format!("{api_version}/{kind}")).copied()
    }

    pub(crate) fn structure(&self, index: usize) -> &Struct {
        &self.structs[index]
    }
}

fn field(raw: &[String], index: &HashMap<&str, usize>) -> Field {
    let part = |place: usize| raw.get(place).map_or("", String::as_str);
    Field {
        shape: shape(part(0), index),
        go_type: part(1).to_owned(),
        omit: match part(2) {
            "omitempty" => Omit::Empty,
            "omitzero" => Omit::Zero,
            _ => Omit::Never,
        },
        merge: part(3).split(',').any(|strategy| strategy == "merge"),
        merge_key: Some(part(4)).filter(|key| !key.is_empty()).map(str::to_owned),
        number: part(5).to_owned(),
    }
}

fn shape(text: &str, index: &HashMap<&str, usize>) -> Shape {
    let inner = |rest| Box::new(shape(rest, index));
    if let Some(rest) = text.strip_prefix('*') {
        return Shape::Pointer(inner(rest));
    }
    if let Some(rest) = text.strip_prefix("[]") {
        return Shape::List(inner(rest));
    }
    if let Some(rest) = text.strip_prefix("{}") {
        return Shape::Map(inner(rest));
    }
    if let Some(name) = text.strip_prefix('>') {
        return Shape::Struct(index[name]);
    }
    match text {
        "string" => Shape::String,
        "bool" => Shape::Bool,
        "int" => Shape::Int,
        "float" => Shape::Float,
        "quantity" => Shape::Quantity,
        "time" => Shape::Time,
        "microtime" => Shape::MicroTime,
        "intorstring" => Shape::IntOrString,
        "bytes" => Shape::Bytes,
        _ => Shape::Any,
    }
}

/// An object as the real server encodes it after decoding, and its unknown fields.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) object: Value,
    /// In the words of strict decoding: `unknown field "spec.colour"`.
    pub(crate) unknown: Vec<String>,
}

/// Decodes an object of a kind. The error is the text of Go's decoder.
pub(crate) fn decode(api_version: &str, kind: &str, object: Value) -> Result<Decoded, String> {
    let schema = Schema::get();
    let Some(structure) = schema.kind(api_version, kind) else {
        return Ok(Decoded { object, unknown: Vec::new() });
    };
    let mut decoder = Decoder { schema, unknown: Vec::new(), path: Vec::new() };
    let mut object = decoder.structure(structure, object)?;
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    Ok(Decoded { object, unknown: decoder.unknown })
}

/// The Go type of a value, and the struct that has it, as errors name them.
#[derive(Clone, Copy)]
struct GoType<'a> {
    owner: &'a str,
    name: &'a str,
}

struct Decoder {
    schema: &'static Schema,
    unknown: Vec<String>,
    path: Vec<String>,
}

impl Decoder {
    fn structure(&mut self, index: usize, value: Value) -> Result<Value, String> {
        let mut given = match value {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        let structure = self.schema.structure(index);
        let mut encoded = Map::new();
        for (name, field) in &structure.fields {
            let value = given.remove(name).unwrap_or(Value::Null);
            if value.is_null()
                && field.omit != Omit::Never
                && !(field.omit == Omit::Empty && field.is_struct())
            {
                continue;
            }
            self.path.push(name.clone());
            let go = GoType { owner: &structure.name, name: &field.go_type };
            let value = self.value(&field.shape, value, go)?;
            self.path.pop();
            if !left_out(field, &value) {
                encoded.insert(name.clone(), value);
            }
        }
        for name in given.keys() {
            let path: Vec<&str> = self.path.iter().map(String::as_str).chain([name.as_str()]).collect();
            self.unknown.push(format!("unknown field {:?}", join(&path)));
        }
        Ok(Value::Object(encoded))
    }

    fn value(&mut self, shape: &Shape, value: Value, go: GoType<'_>) -> Result<Value, String> {
        match (shape, value) {
            (Shape::Pointer(_), Value::Null) => Ok(Value::Null),
            (Shape::Pointer(inner), value) => {
                let name = go.name.strip_prefix('*').unwrap_or(go.name);
                self.value(inner, value, GoType { name, ..go })
            }
            (Shape::Struct(index), value @ (Value::Object(_) | Value::Null)) => self.structure(*index, value),
            (Shape::List(_) | Shape::Map(_), Value::Null) => Ok(Value::Null),
            (Shape::List(inner), Value::Array(items)) => self.list(inner, items, go),
            (Shape::Map(inner), Value::Object(fields)) => self.map(inner, fields, go),
            (Shape::String | Shape::Bytes, Value::Null) => Ok("".into()),
            (Shape::Bool, Value::Null) => Ok(false.into()),
            (Shape::Int | Shape::Float | Shape::IntOrString, Value::Null) => Ok(0.into()),
            (Shape::String | Shape::Bytes, value @ Value::String(_))
            | (Shape::Bool, value @ Value::Bool(_))
            | (Shape::Float, value @ Value::Number(_))
            | (Shape::IntOrString, value @ (Value::String(_) | Value::Number(_)))
            | (Shape::Any, value) => Ok(value),
            (Shape::Int, Value::Number(number)) => self.int(&number, go),
            (Shape::Quantity, value) => Ok(quantity(&value)?.canonical().into()),
            (Shape::Time, value) => time(&value, clock::seconds_text),
            (Shape::MicroTime, value) => time(&value, clock::micros_text),
            (_, value) => Err(self.mismatch(describe(&value), go)),
        }
    }

    fn int(&self, number: &serde_json::Number, go: GoType<'_>) -> Result<Value, String> {
        if number.is_i64() || number.is_u64() {
            return Ok(Value::Number(number.clone()));
        }
        // Kubernetes' JSON decoder accepts 3.0 as 3.
        match number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15) {
            #[expect(clippy::cast_possible_truncation, reason = "the range was just checked")]
            Some(float) => Ok((float as i64).into()),
            None => Err(self.mismatch(&format!("number {number}"), go)),
        }
    }

    fn list(&mut self, inner: &Shape, items: Vec<Value>, go: GoType<'_>) -> Result<Value, String> {
        let name = go.name.strip_prefix("[]").unwrap_or(go.name);
        let mut decoded = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            self.path.push(format!("[{index}]"));
            decoded.push(self.value(inner, item, GoType { name, ..go })?);
            self.path.pop();
        }
        Ok(Value::Array(decoded))
    }

    fn map(&mut self, inner: &Shape, fields: Map<String, Value>, go: GoType<'_>) -> Result<Value, String> {
        let name = if *inner == Shape::String { "string" } else { go.name };
        let mut decoded = Map::new();
        for (key, value) in fields {
            self.path.push(key.clone());
            let value = match inner {
                // Each map of quantities is a list of resources.
                Shape::Quantity => quantity(&value)?.rounded().canonical().into(),
                _ => self.value(inner, value, GoType { name, ..go })?,
            };
            self.path.pop();
            decoded.insert(key, value);
        }
        Ok(Value::Object(decoded))
    }

    fn mismatch(&self, what: &str, GoType { owner, name }: GoType<'_>) -> String {
        let fields: Vec<&str> =
            self.path.iter().map(String::as_str).filter(|part| !part.starts_with('[')).collect();
        let path = fields.join(".");
        format!("json: cannot unmarshal {what} into Go struct field {owner}.{path} of type {name}")
    }
}

impl Field {
    /// Whether the Go type is a struct, which omitempty does not omit.
    fn is_struct(&self) -> bool {
        matches!(
            self.shape,
            Shape::Struct(_) | Shape::Time | Shape::MicroTime | Shape::Quantity | Shape::IntOrString
        )
    }
}

fn left_out(field: &Field, value: &Value) -> bool {
    let empty = match value {
        Value::Null => field.omit == Omit::Zero || !field.is_struct(),
        // An empty value behind a pointer was given by the client.
        _ if matches!(field.shape, Shape::Pointer(_)) => false,
        Value::Object(fields) => fields.is_empty() && (field.omit == Omit::Zero || !field.is_struct()),
        _ if field.is_struct() => false,
        other => crate::object::is_empty(Some(other)),
    };
    empty && field.omit != Omit::Never
}

fn join(path: &[&str]) -> String {
    let mut text = String::new();
    for part in path {
        if !text.is_empty() && !part.starts_with('[') {
            text.push('.');
        }
        text.push_str(part);
    }
    text
}

/// The name of a JSON type in the words of Go's decoder.
pub(crate) fn describe(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn quantity(value: &Value) -> Result<Quantity, String> {
    let text = match value {
        Value::Null => "0".to_owned(),
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    };
    Quantity::parse(&text).map_err(|error| error.to_string())
}

fn time(value: &Value, write: fn(jiff::Timestamp) -> String) -> Result<Value, String> {
    match value {
        Value::Null => Ok(Value::Null),
        Value::String(text) => match clock::parse(text) {
            Some(instant) => Ok(write(instant).into()),
            None => Err(format!(
                "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
            )),
        },
        other => Err(format!("json: cannot unmarshal {} into Go value of type string", describe(other))),
    }
}

/// Brings an object into the form in which the real server stores it: without unknown and empty fields, with
/// canonical quantities and times. An object of an unknown kind, or one that does not decode, is unchanged.
pub fn normalise(object: Value) -> Value {
    let (Some(api_version), Some(kind)) = (object["apiVersion"].as_str(), object["kind"].as_str()) else {
        return object;
    };
    decode(api_version, kind, object.clone()).map_or(object, |decoded| decoded.object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_unknown_field_is_named_by_its_path() {
        let object =
            json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "imgae": "x"}]}});
        let decoded = decode("v1", "Pod", object).unwrap();
        assert_eq!(decoded.unknown, [r#"unknown field "spec.containers[0].imgae""#]);
    }
}
