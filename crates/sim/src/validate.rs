//! Validation.

use serde_json::Value;

use crate::registry::Resource;
use crate::status::FieldError;

pub(crate) fn create(_resource: &Resource, _value: &Value) -> Vec<FieldError> {
    Vec::new()
}

pub(crate) fn update(_resource: &Resource, _sub: &str, _new: &Value, _old: &Value) -> Vec<FieldError> {
    Vec::new()
}

pub(crate) fn warnings(_resource: &Resource, _value: &Value) -> Vec<String> {
    Vec::new()
}
