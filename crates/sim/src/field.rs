//! Field errors, as `apimachinery/pkg/util/validation/field` words them.

use serde_json::{Value, json};

/// One validation error.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    /// `metav1.CauseType`.
    reason: &'static str,
    /// The same in words.
    words: &'static str,
    field: String,
    /// The refused value; `None` for errors that do not show it.
    value: Option<Value>,
    detail: String,
}

impl FieldError {
    /// The text after the field.
    fn body(&self) -> String {
        let mut text = self.words.to_owned();
        if let Some(value) = &self.value {
            text.push_str(&format!(": {value}"));
        }
        if !self.detail.is_empty() {
            text.push_str(&format!(": {}", self.detail));
        }
        text
    }
}

/// The validation errors of one object, in the order of the checks.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    fn push(
        &mut self,
        (reason, words): (&'static str, &'static str),
        field: impl Into<String>,
        value: Option<Value>,
        detail: impl Into<String>,
    ) {
        let (field, detail) = (field.into(), detail.into());
        self.0.push(FieldError { reason, words, field, value, detail });
    }

    /// A value is missing.
    pub(crate) fn required(&mut self, field: impl Into<String>, detail: &str) {
        self.push(("FieldValueRequired", "Required value"), field, None, detail);
    }

    /// A value is malformed or must not change.
    pub(crate) fn invalid(
        &mut self,
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) {
        self.push(("FieldValueInvalid", "Invalid value"), field, Some(value.into()), detail);
    }

    /// A well-formed value is not permitted here.
    pub(crate) fn forbidden(&mut self, field: impl Into<String>, detail: impl Into<String>) {
        self.push(("FieldValueForbidden", "Forbidden"), field, None, detail);
    }

    /// A value must be unique and is not.
    pub(crate) fn duplicate(&mut self, field: impl Into<String>, value: &str) {
        self.push(("FieldValueDuplicate", "Duplicate value"), field, Some(value.into()), "");
    }

    /// A value names an object that does not exist.
    pub(crate) fn not_found(&mut self, field: impl Into<String>, value: &str) {
        self.push(("FieldValueNotFound", "Not found"), field, Some(value.into()), "");
    }

    /// A text or list exceeds `max`.
    pub(crate) fn too_long(&mut self, field: impl Into<String>, max: usize) {
        let detail = format!("may not be more than {max} bytes");
        self.push(("FieldValueTooLong", "Too long"), field, None, detail);
    }

    /// A value is not in the closed set `supported`, which is listed in the given order.
    pub(crate) fn not_supported(
        &mut self,
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: &[&str],
    ) {
        let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        self.push(("FieldValueNotSupported", "Unsupported value"), field, Some(value.into()), detail);
    }

    /// Refuses a text that is not in the closed set `supported`.
    pub(crate) fn one_of(&mut self, field: impl Into<String>, text: &str, supported: &[&str]) {
        if !supported.contains(&text) {
            self.not_supported(field, text, supported);
        }
    }

    /// One `invalid` error for each fault that `rule` finds in a text.
    pub(crate) fn check(&mut self, field: impl Into<String>, text: &str, rule: fn(&str) -> Vec<String>) {
        let field = field.into();
        for fault in rule(text) {
            self.invalid(field.as_str(), text, fault);
        }
    }

    /// Refuses a changed value. An absent value equals null.
    pub(crate) fn immutable(&mut self, field: &str, new: Option<&Value>, old: Option<&Value>) {
        let (new, old) = (new.unwrap_or(&Value::Null), old.unwrap_or(&Value::Null));
        if new != old {
            self.invalid(field, new.clone(), "field is immutable");
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the errors of `other`.
    pub(crate) fn extend(&mut self, other: FieldErrors) {
        self.0.extend(other.0);
    }

    /// Drops the errors that `other` has too.
    pub(crate) fn subtract(&mut self, other: &FieldErrors) {
        self.0.retain(|error| !other.0.contains(error));
    }

    /// The message and the causes of a Status.
    pub(crate) fn message_and_causes(&self) -> (String, Value) {
        let mut texts: Vec<String> = Vec::new();
        for error in &self.0 {
            let text = format!("{}: {}", error.field, error.body());
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let message = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes = self.0.iter().map(|error| {
            let FieldError { reason, field, .. } = error;
            json!({"reason": reason, "message": error.body(), "field": field})
        });
        (message, causes.collect())
    }
}
