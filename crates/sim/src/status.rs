//! Refusals: `metav1.Status` with the code, reason, message and details of the real server
//! (`apimachinery/pkg/api/errors`).

use serde_json::{Value, json};

use crate::field::FieldErrors;
use crate::registry::{Resource, qualified};

/// A refusal.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    /// HTTP status code.
    pub(crate) code: u16,
    /// `metav1.StatusReason`; empty for errors that the real server does not foresee.
    pub(crate) reason: String,
    /// The sentence that a user sees.
    pub(crate) message: String,
    /// `metav1.StatusDetails`.
    pub(crate) details: Option<Value>,
    /// The continue token that a refused page offers instead.
    pub(crate) next: Option<String>,
}

/// The result of a request.
pub(crate) type ApiResult<T> = Result<T, Box<ApiError>>;

impl ApiError {
    /// A refusal without details.
    pub(crate) fn new(code: u16, reason: &str, message: impl Into<String>) -> Box<Self> {
        let (reason, message) = (reason.to_owned(), message.into());
        Box::new(ApiError { code, reason, message, details: None, next: None })
    }

    pub(crate) fn with_details(mut self: Box<Self>, details: Value) -> Box<Self> {
        self.details = Some(details);
        self
    }

    /// A refusal whose details name an object; empty parts are left out.
    fn about(code: u16, reason: &str, [group, kind, name]: [&str; 3], message: String) -> Box<Self> {
        let parts = [("name", name), ("group", group), ("kind", kind)];
        let given = parts.into_iter().filter(|(_, value)| !value.is_empty());
        let details = given.map(|(key, value)| (key.to_owned(), Value::from(value))).collect();
        ApiError::new(code, reason, message).with_details(Value::Object(details))
    }

    pub(crate) fn not_found(resource: &Resource, name: &str) -> Box<Self> {
        let message = format!("{} {name:?} not found", resource.qualified());
        ApiError::about(404, "NotFound", [resource.group, resource.plural, name], message)
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Box<Self> {
        let message = format!("{} {name:?} already exists", resource.qualified());
        ApiError::about(409, "AlreadyExists", [resource.group, resource.plural, name], message)
    }

    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Box<Self> {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified());
        ApiError::about(409, "Conflict", [resource.group, resource.plural, name], message)
    }

    /// The conflict of a delete precondition. It names the kind; other conflicts name the resource.
    pub(crate) fn precondition(resource: &Resource, name: &str, why: &str) -> Box<Self> {
        let kind = qualified(resource.kind, resource.group);
        let message = format!("Operation cannot be fulfilled on {kind} {name:?}: {why}");
        ApiError::about(409, "Conflict", [resource.group, resource.kind, name], message)
    }

    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Box<Self> {
        let quoted = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let message = format!("{}{quoted} is forbidden: {why}", resource.qualified());
        ApiError::about(403, "Forbidden", [resource.group, resource.plural, name], message)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Box<Self> {
        ApiError::new(400, "BadRequest", message)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Box<Self> {
        ApiError::new(410, "Expired", message)
    }

    /// What is refused for its size.
    pub(crate) fn too_large(why: impl std::fmt::Display) -> Box<Self> {
        ApiError::new(413, "RequestEntityTooLarge", format!("Request entity too large: {why}"))
    }

    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Box<Self> {
        ApiError::new(415, "UnsupportedMediaType", message)
    }

    /// Refuses an object (or options) with validation errors.
    pub(crate) fn check(kind: &str, group: &str, name: &str, errors: &FieldErrors) -> ApiResult<()> {
        if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(kind, group, name, errors)) }
    }

    /// The refusal for validation errors.
    pub(crate) fn invalid(kind: &str, group: &str, name: &str, errors: &FieldErrors) -> Box<Self> {
        let (text, causes) = errors.message_and_causes();
        let message = format!("{} {name:?} is invalid: {text}", qualified(kind, group));
        let mut error = ApiError::about(422, "Invalid", [group, kind, name], message);
        if let Some(details) = &mut error.details {
            details["causes"] = causes;
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
