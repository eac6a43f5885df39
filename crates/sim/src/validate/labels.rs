//! Label selectors and node selectors.

use serde_json::Value;

use super::names;
use crate::field::FieldErrors;
use crate::object::{items, text, texts};

/// The labels of an object or of `matchLabels`.
pub(super) fn labels(errors: &mut FieldErrors, labels: Option<&Value>, field: &str) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        errors.check(field, key, names::qualified);
        let value = value.as_str().unwrap_or("");
        errors.check(field, value, names::label_value);
    }
}

/// A `metav1.LabelSelector`.
pub(super) fn label_selector(errors: &mut FieldErrors, selector: &Value, field: &str) {
    labels(errors, selector.get("matchLabels"), &format!("{field}.matchLabels"));
    for (index, expression) in items(selector, "/matchExpressions").iter().enumerate() {
        requirement(errors, expression, &format!("{field}.matchExpressions[{index}]"), Operators::Labels);
    }
}

/// A `core.NodeSelector`.
pub(super) fn node_selector(errors: &mut FieldErrors, selector: &Value, field: &str) {
    let terms = items(selector, "/nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(format!("{field}.nodeSelectorTerms"), "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        let field = format!("{field}.nodeSelectorTerms[{index}]");
        for (index, expression) in items(term, "/matchExpressions").iter().enumerate() {
            requirement(errors, expression, &format!("{field}.matchExpressions[{index}]"), Operators::Nodes);
        }
        for (index, expression) in items(term, "/matchFields").iter().enumerate() {
            field_requirement(errors, expression, &format!("{field}.matchFields[{index}]"));
        }
    }
}

/// The operators that a requirement may use; node selectors also have `Gt` and `Lt`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operators {
    Labels,
    Nodes,
}

fn requirement(errors: &mut FieldErrors, expression: &Value, field: &str, operators: Operators) {
    let values = texts(expression.get("values"));
    let field_values = format!("{field}.values");
    match text(expression, "/operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&field_values, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.forbidden(&field_values, why);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        "Gt" | "Lt" if operators == Operators::Nodes => {
            if values.len() != 1 {
                let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.required(&field_values, why);
            }
        }
        other => errors.invalid(format!("{field}.operator"), other, "not a valid selector operator"),
    }
    errors.check(format!("{field}.key"), text(expression, "/key"), names::qualified);
    for (index, value) in values.iter().enumerate() {
        errors.check(format!("{field_values}[{index}]"), value, names::label_value);
    }
}

fn field_requirement(errors: &mut FieldErrors, expression: &Value, field: &str) {
    match text(expression, "/operator") {
        "In" | "NotIn" => {
            if texts(expression.get("values")).len() != 1 {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.required(format!("{field}.values"), why);
            }
        }
        other => errors.invalid(format!("{field}.operator"), other, "not a valid selector operator"),
    }
    let key = text(expression, "/key");
    if key != "metadata.name" {
        errors.invalid(format!("{field}.key"), key, "not a valid field selector key");
    }
}
