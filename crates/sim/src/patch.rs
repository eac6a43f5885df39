//! The three kinds of patch.

mod json;
mod strategic;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::registry::Resource;
use crate::schema::Schema;
use crate::status::{ApiError, ApiResult};

/// The most operations that one JSON patch may have, as on the real server.
const OPERATIONS_MAX: usize = 10_000;

/// A kind of patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Json,
    Merge,
    Strategic,
}

impl Kind {
    /// The kind by the media type of a request.
    pub(crate) fn of(content_type: &str) -> ApiResult<Self> {
        match content_type.split(';').next().unwrap_or("").trim() {
            "application/json-patch+json" => Ok(Kind::Json),
            "application/merge-patch+json" => Ok(Kind::Merge),
            "application/strategic-merge-patch+json" => Ok(Kind::Strategic),
            // kubectl shows this sentence to whoever tries `apply --server-side`.
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
                Err(ApiError::unsupported_media_type(
                    "the simulator does not do server-side apply: leave out --server-side, or send one of \
                     application/json-patch+json, application/merge-patch+json, \
                     application/strategic-merge-patch+json",
                ))
            }
            _ => {
                let mut error = ApiError::unsupported_media_type("415: Unsupported Media Type");
                error.details = Some(json!({}));
                Err(error)
            }
        }
    }
}

/// Applies a patch to an object.
pub(crate) fn apply(kind: Kind, resource: &Resource, object: &Value, body: &Bytes) -> ApiResult<Value> {
    let patch: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
    let mut patched = object.clone();
    match kind {
        Kind::Json => {
            if !patch.is_array() {
                return Err(wrong_type(&patch, "[]handlers.jsonPatchOp"));
            }
            let patch: Vec<Map<String, Value>> = serde_json::from_value(patch).map_err(|_| cannot_apply())?;
            if patch.len() > OPERATIONS_MAX {
                let message = format!(
                    "Request entity too large: The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, \
                     got {}",
                    patch.len()
                );
                return Err(ApiError::new(413, "RequestEntityTooLarge", message));
            }
            json::apply(&mut patched, &patch).ok_or_else(cannot_apply)?;
        }
        Kind::Merge if patch.is_object() => json_patch::merge(&mut patched, &patch),
        Kind::Strategic if patch.is_object() => {
            let structure = Schema::get().kind(&resource.api_version(), resource.kind);
            strategic::merge(&mut patched, patch, structure).map_err(|fault| match fault {
                // The real server does not foresee this one, and so has no reason for it.
                strategic::Fault::UnknownDirective(directive) => {
                    let message = format!("unknown patch type: {directive} in map: map[$patch:{directive}]");
                    ApiError::new(500, "", message)
                }
                strategic::Fault::NoMergeKey { item, key } => {
                    let message =
                        format!("map: {} does not contain declared merge key: {key}", go_map(&item));
                    ApiError::new(500, "", message)
                }
            })?;
        }
        Kind::Merge | Kind::Strategic => return Err(wrong_type(&patch, "map[string]interface {}")),
    }
    Ok(patched)
}

fn wrong_type(patch: &Value, wanted: &str) -> Box<ApiError> {
    let found = match patch {
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Null => "null",
    };
    ApiError::bad_request(format!(
        "error decoding patch: json: cannot unmarshal {found} into Go value of type {wanted}"
    ))
}

/// A JSON patch that does not fit the object; the real server keeps the reason to itself.
fn cannot_apply() -> Box<ApiError> {
    let message = "the server rejected our request due to an error in our request";
    let mut error = ApiError::new(422, "Invalid", message);
    error.details = Some(json!({}));
    error
}

/// A value as Go prints maps.
fn go_map(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", go_map(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_map).collect();
            format!("[{}]", items.join(" "))
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
