//! Settings of policies, and the part of JSON Schema by which a policy describes them.
//!
//! A schema comes from an untrusted component. So this is the part that describes plain settings: no
//! references, no regular expressions and no combinations of schemas, whose work is hard to bound. The
//! library `jsonschema` was considered: it does all of that, by 50 more packages.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Number, Value};

use crate::{Metadata, PolicyFault};

/// A JSON Schema of settings.
///
/// It may use `type`, `enum`, `properties`, `required`, `additionalProperties`, `items`, `minimum`,
/// `maximum`, `minLength`, `maxLength`, `minItems`, `maxItems`, and what explains: `$schema`, `title`,
/// `description`, `default` and `examples`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SettingsSchema {
    #[serde(rename = "type")]
    kind: Option<ValueType>,
    #[serde(rename = "enum", default)]
    values: Vec<Value>,
    #[serde(default)]
    properties: BTreeMap<String, Self>,
    #[serde(default)]
    required: Vec<String>,
    additional_properties: Option<Additional>,
    items: Option<Box<Self>>,
    minimum: Option<Number>,
    maximum: Option<Number>,
    min_length: Option<usize>,
    max_length: Option<usize>,
    min_items: Option<usize>,
    max_items: Option<usize>,
    #[serde(rename = "$schema")]
    _schema: Option<Value>,
    #[serde(rename = "title")]
    _title: Option<Value>,
    #[serde(rename = "description")]
    _description: Option<Value>,
    #[serde(rename = "default")]
    _default: Option<Value>,
    #[serde(rename = "examples")]
    _examples: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ValueType {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    Null,
}

/// What properties may have that `properties` does not name.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Additional {
    Allowed(bool),
    Each(Box<SettingsSchema>),
}

impl SettingsSchema {
    /// Reads a schema.
    ///
    /// # Errors
    ///
    /// The text is not a schema, or it uses a keyword that is not served: which one, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let schema: Self =
            serde_json::from_str(text).map_err(|error| format!("the settings' schema: {error}"))?;
        match schema.kind {
            None | Some(ValueType::Object) => Ok(schema),
            Some(_) => Err("the settings' schema: its type must be object".to_owned()),
        }
    }

    /// The names of the settings.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.properties.keys().map(String::as_str)
    }

    /// Checks settings.
    ///
    /// # Errors
    ///
    /// One sentence: the path of the first setting that does not fit, what was found, and what is allowed.
    pub fn check(&self, settings: &Value) -> Result<(), String> {
        self.check_at("settings", settings)
    }

    fn check_at(&self, path: &str, value: &Value) -> Result<(), String> {
        if !self.allows(value) {
            return Err(format!("{path}: found {}; {} is allowed", shown(value), self.allowed()));
        }
        match value {
            Value::Object(object) => self.check_properties(path, object),
            Value::Array(list) => {
                let each = self.items.iter().flat_map(|schema| list.iter().map(move |item| (schema, item)));
                each.zip(0..).try_for_each(|((schema, item), place)| {
                    schema.check_at(&format!("{path}[{place}]"), item)
                })
            }
            _ => Ok(()),
        }
    }

    fn check_properties(&self, path: &str, object: &serde_json::Map<String, Value>) -> Result<(), String> {
        if let Some(name) = self.required.iter().find(|name| !object.contains_key(*name)) {
            let needed = self.properties.get(name).map_or_else(|| "a value".to_owned(), Self::allowed);
            return Err(format!("{path}.{name} is missing; {needed} is needed"));
        }
        for (name, value) in object {
            let path = format!("{path}.{name}");
            match (self.properties.get(name), &self.additional_properties) {
                (Some(schema), _) => schema.check_at(&path, value)?,
                (None, Some(Additional::Each(schema))) => schema.check_at(&path, value)?,
                (None, Some(Additional::Allowed(false))) => {
                    let names: Vec<&str> = self.names().collect();
                    let allowed = if names.is_empty() { "nothing" } else { &names.join(", ") };
                    return Err(format!("{path}: there is no such setting; allowed: {allowed}"));
                }
                (None, _) => {}
            }
        }
        Ok(())
    }

    /// Whether the value itself fits, whatever is in it.
    fn allows(&self, value: &Value) -> bool {
        let within = |length: usize, min: Option<usize>, max: Option<usize>| {
            min.is_none_or(|min| min <= length) && max.is_none_or(|max| length <= max)
        };
        let fits = match value {
            Value::String(text) => within(text.chars().count(), self.min_length, self.max_length),
            Value::Array(list) => within(list.len(), self.min_items, self.max_items),
            Value::Number(number) => {
                self.minimum.as_ref().is_none_or(|minimum| is_at_most(minimum, number))
                    && self.maximum.as_ref().is_none_or(|maximum| is_at_most(number, maximum))
            }
            Value::Object(_) | Value::Bool(_) | Value::Null => true,
        };
        fits && self.kind.is_none_or(|kind| kind.has(value))
            && (self.values.is_empty() || self.values.contains(value))
    }

    /// What is allowed, such as `an integer from 1 to 10`.
    fn allowed(&self) -> String {
        if !self.values.is_empty() {
            let values: Vec<String> = self.values.iter().map(Value::to_string).collect();
            return values.join(" or ");
        }
        let (what, min, max, unit) = match self.kind {
            None => return "any value".to_owned(),
            Some(ValueType::Object) => return "an object".to_owned(),
            Some(ValueType::Boolean) => return "true or false".to_owned(),
            Some(ValueType::Null) => return "null".to_owned(),
            Some(ValueType::Integer) => ("an integer", text(&self.minimum), text(&self.maximum), ""),
            Some(ValueType::Number) => ("a number", text(&self.minimum), text(&self.maximum), ""),
            Some(ValueType::String) => {
                ("a text", text(&self.min_length), text(&self.max_length), " characters")
            }
            Some(ValueType::Array) => ("a list", text(&self.min_items), text(&self.max_items), " items"),
        };
        match (min, max) {
            (None, None) => what.to_owned(),
            (Some(min), None) => format!("{what} from {min}{unit}"),
            (None, Some(max)) => format!("{what} up to {max}{unit}"),
            (Some(min), Some(max)) => format!("{what} from {min} to {max}{unit}"),
        }
    }
}

impl ValueType {
    fn has(self, value: &Value) -> bool {
        match self {
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
            Self::String => value.is_string(),
            Self::Integer => value.is_i64() || value.is_u64(),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::Null => value.is_null(),
        }
    }
}

/// Compares integers exactly, others as floating-point numbers.
fn is_at_most(a: &Number, b: &Number) -> bool {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a <= b,
        _ => a.as_f64() <= b.as_f64(),
    }
}

fn text(bound: &Option<impl ToString>) -> Option<String> {
    bound.as_ref().map(ToString::to_string)
}

/// A value for people, in at most 60 characters.
fn shown(value: &Value) -> String {
    const CHARACTERS_MAX: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Checks settings by the schema of a policy, and then by the policy itself: `check` is its function of that
/// name. The inner error is a sentence about the settings.
pub fn check_settings(
    metadata: &Metadata,
    settings: &Map<String, Value>,
    check: impl FnOnce(&str) -> Result<Result<(), String>, PolicyFault>,
) -> Result<Result<(), String>, PolicyFault> {
    let settings = Value::Object(settings.clone());
    let schema = SettingsSchema::parse(&metadata.settings_schema).map_err(PolicyFault::BadAnswer)?;
    match schema.check(&settings) {
        Ok(()) => check(&settings.to_string()),
        Err(why) => Ok(Err(why)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_that_do_not_fit_are_told_with_path_and_what_is_allowed() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "times": {"type": "integer", "minimum": 1, "maximum": 10},
                "by": {"enum": ["Label", "Name"], "default": "Label"},
                "keys": {"type": "array", "minItems": 1, "items": {"type": "string", "maxLength": 3}},
                "scores": {"type": "object", "additionalProperties": {"type": "number", "minimum": 0.5}},
                "any": {},
            },
            "required": ["times"],
            "additionalProperties": false,
        });
        let schema = SettingsSchema::parse(&schema.to_string()).unwrap();
        let times = "an integer from 1 to 10";
        for (settings, why) in [
            (json!({"times": 1, "by": "Name", "keys": ["a"], "scores": {"b": 0.5}, "any": null}), ""),
            (json!([]), "settings: found []; an object is allowed"),
            (json!({}), &format!("settings.times is missing; {times} is needed")),
            (json!({"times": 0}), &format!("settings.times: found 0; {times} is allowed")),
            (json!({"times": 1.5}), &format!("settings.times: found 1.5; {times} is allowed")),
            (json!({"times": 11}), &format!("settings.times: found 11; {times} is allowed")),
            (
                json!({"times": 1, "by": "label"}),
                r#"settings.by: found "label"; "Label" or "Name" is allowed"#,
            ),
            (json!({"times": 1, "keys": []}), "settings.keys: found []; a list from 1 items is allowed"),
            (
                json!({"times": 1, "keys": ["a", "long"]}),
                r#"settings.keys[1]: found "long"; a text up to 3 characters is allowed"#,
            ),
            (
                json!({"times": 1, "scores": {"b": 0.1}}),
                "settings.scores.b: found 0.1; a number from 0.5 is allowed",
            ),
            (
                json!({"times": 1, "tmies": 1}),
                "settings.tmies: there is no such setting; allowed: any, by, keys, scores, times",
            ),
        ] {
            assert_eq!(schema.check(&settings).err().unwrap_or_default(), why, "{settings}");
        }
    }

    #[test]
    fn a_schema_that_cannot_be_checked_is_refused() {
        for (schema, why) in [
            ("", "EOF"),
            ("true", "expected struct"),
            (r#"{"type": "array"}"#, "its type must be object"),
            (r#"{"type": "object", "oneOf": []}"#, "unknown field `oneOf`"),
            (r#"{"type": "object", "properties": {"a": {"pattern": "(a*)*"}}}"#, "unknown field `pattern`"),
            (&"{\"items\":".repeat(200), "recursion limit"),
        ] {
            let error = SettingsSchema::parse(schema).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
