//! The three kinds of patch.

mod strategic;

use bytes::Bytes;
use serde_json::Value;

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
            _ => Err(ApiError::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, \
                 application/strategic-merge-patch+json",
            )),
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
            let patch: json_patch::Patch = serde_json::from_value(patch)
                .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
            if patch.0.len() > OPERATIONS_MAX {
                let message = format!(
                    "Request entity too large: The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, \
                     got {}",
                    patch.0.len()
                );
                return Err(ApiError::new(413, "RequestEntityTooLarge", message));
            }
            json_patch::patch(&mut patched, &patch.0).map_err(|_| {
                let message = "the server rejected our request due to an error in our request";
                let mut error = ApiError::new(422, "Invalid", message);
                error.details = Some(serde_json::json!({}));
                error
            })?;
        }
        Kind::Merge if patch.is_object() => json_patch::merge(&mut patched, &patch),
        Kind::Strategic if patch.is_object() => {
            let structure = Schema::get().kind(&resource.api_version(), resource.kind);
            strategic::merge(&mut patched, patch, structure).map_err(ApiError::bad_request)?;
        }
        Kind::Merge | Kind::Strategic => {
            return Err(ApiError::bad_request("error decoding patch: a merge patch must be a JSON object"));
        }
    }
    Ok(patched)
}
