//! JSON schemas in the form that Kubernetes takes: structural, with a type for each value.

use serde_json::{Map, Value, json};

/// Changes a schema, and those within it.
pub(super) fn make(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    fields.remove("$schema");
    fields.remove("title");
    present_only(fields);
    join_cases(fields);
    match fields.get("additionalProperties") {
        // The API server drops unknown fields, or refuses them, without being told.
        Some(Value::Bool(false)) => drop(fields.remove("additionalProperties")),
        Some(Value::Bool(true)) => {
            fields.remove("additionalProperties");
            fields.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
        }
        _ => {}
    }
    // Kubernetes has signed formats only; the bounds say the rest.
    if let Some(format) = fields.get_mut("format")
        && let Some(signed) = format.as_str().and_then(|format| format.strip_prefix('u'))
    {
        *format = signed.into();
    }
    // Empty defaults would only make each object longer, and an empty text is not a valid date-time.
    let is_empty =
        |value: &Value| value.is_null() || value.is_array() || value.is_object() || *value == json!("");
    if fields.get("default").is_some_and(is_empty) {
        fields.remove("default");
    }
    if let Some(Value::String(text)) = fields.get_mut("description") {
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!text.contains("[`"), "users cannot follow a link to code: {text}");
    }
    for below in ["items", "additionalProperties"] {
        fields.get_mut(below).into_iter().for_each(make);
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(make);
    }
}

/// An optional value is absent, never null.
fn present_only(fields: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = fields.get_mut("type") {
        types.retain(|name| name != "null");
        assert_eq!(types.len(), 1, "a value has one type");
        fields["type"] = types.remove(0);
    }
    if let Some(Value::Array(mut choices)) = fields.remove("anyOf") {
        choices.retain(|choice| *choice != json!({"type": "null"}));
        let [Value::Object(only)] = &mut choices[..] else { panic!("a value has one type: {choices:?}") };
        only.append(fields);
        *fields = std::mem::take(only);
    }
}

/// The cases of an enum as a list. Their comments follow the description.
fn join_cases(fields: &mut Map<String, Value>) {
    let Some(Value::Array(cases)) = fields.remove("oneOf") else { return };
    let text = |value: &Value| value.as_str().expect("a case is a text with a comment").to_owned();
    let mut description = fields.get("description").map(text).unwrap_or_default();
    for case in &cases {
        description += &format!(" `{}`: {}", text(&case["const"]), text(&case["description"]));
    }
    fields.insert("description".to_owned(), description.into());
    fields.insert("type".to_owned(), "string".into());
    fields.insert("enum".to_owned(), cases.iter().map(|case| case["const"].clone()).collect());
}
