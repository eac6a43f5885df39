//! JSON schemas from the OpenAPI document of Kubernetes, one for each kind, as kubeconform reads them.
//!
//! They are stricter than the document: what an object does not define, it may not have, and an object says
//! what it is.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

/// Changes with what [`of`] makes.
pub(super) const FORMAT: &str = "1";

/// Where one definition names another one.
const DEFINITIONS: &str = "#/definitions/";

/// The schemas by the name of their file: group, version and kind in lower case, as in
/// `apps_v1_deployment.json`. Core's group is called by its version, as kubeconform has it.
///
/// # Errors
/// When the document has no definitions, or one names another that is not there.
pub(super) fn of(document: &Value) -> Result<BTreeMap<String, Value>> {
    let definitions =
        document["definitions"].as_object().context("the OpenAPI document has no definitions")?;
    let strict: BTreeMap<&str, Value> =
        definitions.iter().map(|(name, definition)| (name.as_str(), strict(name, definition))).collect();
    let mut schemas = BTreeMap::new();
    for (name, definition) in definitions {
        // Options of requests belong to every group.
        let Some([kind]) = definition["x-kubernetes-group-version-kind"].as_array().map(Vec::as_slice) else {
            continue;
        };
        let text = |field: &str| kind[field].as_str().unwrap_or_default().to_owned();
        let (group, version, kind) = (text("group"), text("version"), text("kind"));
        let api_version = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
        let folder = if group.is_empty() { &version } else { &group };
        let file = format!("{folder}_{version}_{}.json", kind.to_lowercase());
        let schema = json!({
            "allOf": [
                {"$ref": format!("{DEFINITIONS}{name}")},
                {
                    "required": ["apiVersion", "kind"],
                    "properties": {"apiVersion": {"const": api_version}, "kind": {"const": kind}},
                },
            ],
            "definitions": needed(name, &strict)?,
        });
        schemas.insert(file, schema);
    }
    Ok(schemas)
}

/// A definition that allows nothing beyond what it defines.
fn strict(name: &str, definition: &Value) -> Value {
    if name.ends_with(".api.resource.Quantity") {
        return json!({"type": ["string", "number"]});
    }
    closed(definition)
}

fn closed(schema: &Value) -> Value {
    let Some(fields) = schema.as_object() else { return schema.clone() };
    if fields.get("format").is_some_and(|format| format == "int-or-string") {
        return json!({"type": ["string", "integer"]});
    }
    let mut closed = Map::new();
    for (field, value) in fields {
        match field.as_str() {
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                let properties: Map<_, _> =
                    properties.map(|(name, schema)| (name.clone(), self::closed(schema))).collect();
                closed.insert(field.clone(), properties.into());
                closed.entry("additionalProperties").or_insert(false.into());
            }
            "items" | "additionalProperties" => drop(closed.insert(field.clone(), self::closed(value))),
            "$ref" | "type" | "required" | "enum" => drop(closed.insert(field.clone(), value.clone())),
            // What is for people, and for those who merge objects.
            _ => {}
        }
    }
    closed.into()
}

/// A definition and all that it names, directly or not.
fn needed<'a>(name: &'a str, definitions: &'a BTreeMap<&str, Value>) -> Result<Map<String, Value>> {
    let mut seen = BTreeSet::from([name]);
    let mut pending = vec![name];
    let mut needed = Map::new();
    while let Some(name) = pending.pop() {
        let definition =
            definitions.get(name).with_context(|| format!("there is no definition of {name}"))?;
        let mut named = Vec::new();
        references(definition, &mut named);
        pending.extend(named.into_iter().filter(|name| seen.insert(name)));
        needed.insert(name.to_owned(), definition.clone());
    }
    Ok(needed)
}

fn references<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
    match schema {
        Value::Object(fields) => {
            let reference = fields.get("$ref").and_then(Value::as_str);
            found.extend(reference.and_then(|reference| reference.strip_prefix(DEFINITIONS)));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_holds_all_that_it_needs_and_allows_nothing_else() {
        let document = json!({"definitions": {
            "a.Thing": {
                "description": "A thing.",
                "type": "object",
                "properties": {"spec": {"$ref": "#/definitions/a.Spec"}, "kind": {"type": "string"}},
                "x-kubernetes-group-version-kind": [{"group": "a.io", "version": "v1", "kind": "Thing"}],
            },
            "a.Spec": {
                "type": "object",
                "required": ["port"],
                "properties": {
                    "port": {"type": "string", "format": "int-or-string"},
                    "size": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.api.resource.Quantity"},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                },
            },
            "a.Other": {"type": "string"},
            "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
        }});
        let schemas = of(&document).unwrap();
        let schema = &schemas["a.io_v1_thing.json"];
        assert_eq!(schemas.len(), 1);
        let definitions = schema["definitions"].as_object().unwrap();
        assert!(!definitions.contains_key("a.Other"));
        assert_eq!(definitions["a.Thing"]["additionalProperties"], false);
        let spec = &definitions["a.Spec"];
        assert_eq!(spec["properties"]["port"], json!({"type": ["string", "integer"]}));
        assert_eq!(spec["properties"]["labels"]["additionalProperties"], json!({"type": "string"}));
        assert_eq!(spec["required"], json!(["port"]));
        assert_eq!(schema["allOf"][1]["properties"]["apiVersion"]["const"], "a.io/v1");
    }

    #[test]
    fn what_names_a_definition_that_is_not_there_is_refused() {
        let document = json!({"definitions": {"a.Thing": {
            "properties": {"spec": {"$ref": "#/definitions/a.Spec"}},
            "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Thing"}],
        }}});
        assert!(of(&document).unwrap_err().to_string().contains("a.Spec"));
    }
}
