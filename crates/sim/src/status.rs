//! What the server answers when it refuses: `metav1.Status` with the code, reason, message and causes of the
//! real one.
//!
//! Shapes follow `apimachinery/pkg/api/errors` and `apimachinery/pkg/util/validation/field`.

use serde_json::{Map, Value, json};

use crate::registry::Resource;

/// A refusal.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    /// HTTP status code.
    pub(crate) code: u16,
    /// `metav1.StatusReason`; empty for "unknown".
    pub(crate) reason: String,
    /// The sentence that a user sees.
    pub(crate) message: String,
    /// `metav1.StatusDetails`.
    pub(crate) details: Option<Value>,
    /// Where a page is refused, the token of one that can be had.
    pub(crate) next: Option<String>,
}

/// What handlers answer.
pub(crate) type ApiResult<T> = Result<T, Box<ApiError>>;

impl ApiError {
    /// A refusal without details.
    pub(crate) fn new(code: u16, reason: &str, message: impl Into<String>) -> Box<Self> {
        Box::new(ApiError {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details: None,
            next: None,
        })
    }

    fn about(
        code: u16,
        reason: &str,
        group: &str,
        kind: &str,
        name: &str,
        message: impl Into<String>,
    ) -> Box<Self> {
        let mut details = Map::new();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), value.into());
            }
        }
        let mut error = ApiError::new(code, reason, message);
        error.details = Some(Value::Object(details));
        error
    }

    pub(crate) fn not_found(resource: &Resource, name: &str) -> Box<Self> {
        let message = format!("{} {name:?} not found", resource.qualified());
        ApiError::about(404, "NotFound", resource.group, resource.plural, name, message)
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Box<Self> {
        let message = format!("{} {name:?} already exists", resource.qualified());
        ApiError::about(409, "AlreadyExists", resource.group, resource.plural, name, message)
    }

    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Box<Self> {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified());
        ApiError::about(409, "Conflict", resource.group, resource.plural, name, message)
    }

    /// The conflict of a delete precondition, which names the kind where others name the resource.
    pub(crate) fn precondition(resource: &Resource, name: &str, why: &str) -> Box<Self> {
        let message =
            format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified_kind());
        ApiError::about(409, "Conflict", resource.group, resource.kind, name, message)
    }

    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Box<Self> {
        let message = if name.is_empty() {
            format!("{} is forbidden: {why}", resource.qualified())
        } else {
            format!("{} {name:?} is forbidden: {why}", resource.qualified())
        };
        ApiError::about(403, "Forbidden", resource.group, resource.plural, name, message)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Box<Self> {
        ApiError::new(400, "BadRequest", message)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Box<Self> {
        ApiError::new(410, "Expired", message)
    }

    pub(crate) fn method_not_allowed() -> Box<Self> {
        let message = "the server does not allow this method on the requested resource";
        let mut error = ApiError::new(405, "MethodNotAllowed", message);
        error.details = Some(json!({}));
        error
    }

    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Box<Self> {
        ApiError::new(415, "UnsupportedMediaType", message)
    }

    /// Validation errors of one object.
    pub(crate) fn invalid(kind: &str, group: &str, name: &str, errors: &[FieldError]) -> Box<Self> {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut texts: Vec<String> = Vec::new();
        for error in errors {
            let text = format!("{}: {}", error.field, error.body());
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let text = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<Value> = errors
            .iter()
            .map(
                |error| json!({"reason": error.kind.reason(), "message": error.body(), "field": error.field}),
            )
            .collect();
        let message = format!("{qualified} {name:?} is invalid: {text}");
        let mut error = ApiError::about(422, "Invalid", group, kind, name, message);
        if let Some(Value::Object(details)) = &mut error.details {
            details.insert("causes".to_owned(), Value::Array(causes));
        }
        error
    }

    /// The `metav1.Status` object.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.as_str().into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if let Some(next) = &self.next {
            status["metadata"]["continue"] = next.as_str().into();
        }
        status
    }
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldErrorKind {
    /// A value is missing.
    Required,
    /// A value is malformed or may not change.
    Invalid,
    /// A value is not one of a closed set.
    NotSupported,
    /// A value is well-formed and not permitted here.
    Forbidden,
    /// A value must be unique and is not.
    Duplicate,
    /// A value names what does not exist.
    NotFound,
    /// A text is too long.
    TooLong,
}

impl FieldErrorKind {
    fn reason(self) -> &'static str {
        match self {
            FieldErrorKind::Required => "FieldValueRequired",
            FieldErrorKind::Invalid => "FieldValueInvalid",
            FieldErrorKind::NotSupported => "FieldValueNotSupported",
            FieldErrorKind::Forbidden => "FieldValueForbidden",
            FieldErrorKind::Duplicate => "FieldValueDuplicate",
            FieldErrorKind::NotFound => "FieldValueNotFound",
            FieldErrorKind::TooLong => "FieldValueTooLong",
        }
    }

    fn words(self) -> &'static str {
        match self {
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Invalid => "Invalid value",
            FieldErrorKind::NotSupported => "Unsupported value",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::Duplicate => "Duplicate value",
            FieldErrorKind::NotFound => "Not found",
            FieldErrorKind::TooLong => "Too long",
        }
    }
}

/// One validation error: a field, what is wrong, and the value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    pub(crate) kind: FieldErrorKind,
    pub(crate) field: String,
    pub(crate) value: Value,
    pub(crate) detail: String,
}

impl FieldError {
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        FieldError {
            kind: FieldErrorKind::Required,
            field: field.into(),
            value: Value::Null,
            detail: detail.to_owned(),
        }
    }

    pub(crate) fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        FieldError {
            kind: FieldErrorKind::Invalid,
            field: field.into(),
            value: value.into(),
            detail: detail.into(),
        }
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        FieldError {
            kind: FieldErrorKind::Forbidden,
            field: field.into(),
            value: Value::Null,
            detail: detail.into(),
        }
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        FieldError {
            kind: FieldErrorKind::Duplicate,
            field: field.into(),
            value: value.into(),
            detail: String::new(),
        }
    }

    pub(crate) fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        FieldError {
            kind: FieldErrorKind::NotFound,
            field: field.into(),
            value: value.into(),
            detail: String::new(),
        }
    }

    pub(crate) fn too_long(field: impl Into<String>, max: usize) -> Self {
        FieldError {
            kind: FieldErrorKind::TooLong,
            field: field.into(),
            value: Value::Null,
            detail: format!("may not be more than {max} bytes"),
        }
    }

    /// `supported`: the closed set, sorted.
    pub(crate) fn not_supported(
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: &[&str],
    ) -> Self {
        let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        FieldError {
            kind: FieldErrorKind::NotSupported,
            field: field.into(),
            value: value.into(),
            detail: format!("supported values: {}", quoted.join(", ")),
        }
    }

    /// The text without the field.
    pub(crate) fn body(&self) -> String {
        let mut text = self.kind.words().to_owned();
        if !matches!(
            self.kind,
            FieldErrorKind::Required | FieldErrorKind::Forbidden | FieldErrorKind::TooLong
        ) {
            text.push_str(": ");
            text.push_str(&self.value.to_string());
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}
