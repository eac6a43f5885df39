//! Label selectors and node selectors.

use serde_json::Value;

use super::{each, names};
use crate::object::{items, text, texts};
use crate::status::FieldError;

/// The labels of an object or of `matchLabels`.
pub(super) fn labels(errors: &mut Vec<FieldError>, labels: Option<&Value>, field: &str) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        errors.extend(each(field, key, names::qualified(key)));
        let value = value.as_str().unwrap_or("");
        errors.extend(each(field, value, names::label_value(value)));
    }
}

/// A `metav1.LabelSelector`.
pub(super) fn label_selector(errors: &mut Vec<FieldError>, selector: &Value, field: &str) {
    labels(errors, selector.get("matchLabels"), &format!("{field}.matchLabels"));
    for (index, expression) in items(selector, "/matchExpressions").iter().enumerate() {
        requirement(errors, expression, &format!("{field}.matchExpressions[{index}]"), Operators::Labels);
    }
}

/// A `core.NodeSelector`.
pub(super) fn node_selector(errors: &mut Vec<FieldError>, selector: &Value, field: &str) {
    let terms = items(selector, "/nodeSelectorTerms");
    if terms.is_empty() {
        let why = "must have at least one node selector term";
        errors.push(FieldError::required(format!("{field}.nodeSelectorTerms"), why));
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

/// Which operators a requirement may use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operators {
    Labels,
    Nodes,
}

fn requirement(errors: &mut Vec<FieldError>, expression: &Value, field: &str, operators: Operators) {
    let values = texts(expression.get("values"));
    let operator = text(expression, "/operator");
    let field_values = format!("{field}.values");
    match operator {
        "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
            &field_values,
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(&field_values, why));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        "Gt" | "Lt" if operators == Operators::Nodes => {
            if values.len() != 1 {
                let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.push(FieldError::required(&field_values, why));
            }
        }
        other => errors.push(FieldError::invalid(
            format!("{field}.operator"),
            other,
            "not a valid selector operator",
        )),
    }
    let key = text(expression, "/key");
    errors.extend(each(&format!("{field}.key"), key, names::qualified(key)));
    for (index, value) in values.iter().enumerate() {
        errors.extend(each(&format!("{field_values}[{index}]"), value, names::label_value(value)));
    }
}

fn field_requirement(errors: &mut Vec<FieldError>, expression: &Value, field: &str) {
    match text(expression, "/operator") {
        "In" | "NotIn" => {
            if texts(expression.get("values")).len() != 1 {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.push(FieldError::required(format!("{field}.values"), why));
            }
        }
        other => errors.push(FieldError::invalid(
            format!("{field}.operator"),
            other,
            "not a valid selector operator",
        )),
    }
    let key = text(expression, "/key");
    if key != "metadata.name" {
        errors.push(FieldError::invalid(format!("{field}.key"), key, "not a valid field selector key"));
    }
}
