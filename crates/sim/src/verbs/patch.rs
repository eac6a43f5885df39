//! PATCH, by JSON patch, JSON merge patch, strategic merge patch or server-side apply.

mod apply;
mod json;
mod strategic;

use serde_json::{Map, Value, json};

use super::events::to_view;
use super::{Answer, body, create, existing, update};
use crate::field::FieldErrors;
use crate::http::route::Call;
use crate::object;
use crate::schema::{Schema, describe};
use crate::state::State;
use crate::status::{ApiError, ApiResult};

/// The most operations of one JSON patch, as on the real server.
const OPERATIONS_MAX: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

pub(super) fn patch(state: &mut State, call: &Call) -> ApiResult<Answer> {
    let patch_type = patch_type(call)?;
    let existing = match existing(state, call) {
        Err(_) if patch_type == PatchType::Apply && call.subresource.is_empty() => None,
        found => Some(found?),
    };
    let view = existing.as_ref().map(|existing| to_view(call.resource, existing));
    let patched = match patch_type {
        PatchType::Apply => apply::apply(state, call, view.as_ref())?,
        _ => apply(patch_type, call, view.unwrap_or_default())?,
    };
    let mut warnings = Vec::new();
    let mut value = decode(call, patched, &mut warnings)?;
    body::check_namespace(call, &mut value)?;
    body::check_name(call, &value)?;
    let (code, body) = match existing {
        Some(existing) => (200, update::replace(state, call, &existing, value, &mut warnings)?),
        None => (201, create::insert(state, call, value, &mut warnings)?),
    };
    Ok(Answer { code, body, warnings })
}

/// Applies the patch in a request for a Scale.
pub(super) fn patch_scale(call: &Call, scale: Value, warnings: &mut Vec<String>) -> ApiResult<Value> {
    match patch_type(call)? {
        PatchType::Apply => Err(unsupported()),
        patch_type => decode(call, apply(patch_type, call, scale)?, warnings),
    }
}

fn patch_type(call: &Call) -> ApiResult<PatchType> {
    match call.media_type() {
        "application/json-patch+json" => Ok(PatchType::Json),
        "application/merge-patch+json" => Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" => Ok(PatchType::Strategic),
        "application/apply-patch+yaml" => Ok(PatchType::Apply),
        _ => Err(unsupported()),
    }
}

fn unsupported() -> Box<ApiError> {
    ApiError::unsupported_media_type("415: Unsupported Media Type").with_details(json!({}))
}

/// Decodes a patched object. Errors are reported as errors of the patch.
fn decode(call: &Call, patched: Value, warnings: &mut Vec<String>) -> ApiResult<Value> {
    let text = patched.to_string();
    let refuse = |why: String| {
        let mut errors = FieldErrors::default();
        errors.invalid("patch", text.as_str(), why);
        ApiError::invalid("", "", "", &errors)
    };
    let (api_version, kind) = (object::text(&patched, "/apiVersion"), object::text(&patched, "/kind"));
    if api_version != call.resource.api_version() || kind != call.resource.kind {
        return Err(refuse(body::wrong_kind(api_version, kind, call.resource.kind)));
    }
    body::decode(call, patched, warnings).map_err(refuse)
}

/// Applies the patch in a request to an object.
fn apply(patch_type: PatchType, call: &Call, mut object: Value) -> ApiResult<Value> {
    let patch: Value = serde_json::from_slice(&call.body)
        .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
    match patch_type {
        PatchType::Json => {
            if !patch.is_array() {
                return Err(wrong_type(&patch, "[]handlers.jsonPatchOp"));
            }
            let patch: Vec<Map<String, Value>> = serde_json::from_value(patch).map_err(|_| cannot_apply())?;
            if patch.len() > OPERATIONS_MAX {
                return Err(ApiError::too_large(format!(
                    "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
                    patch.len()
                )));
            }
            json::apply(&mut object, &patch).map_err(|fault| match fault {
                json::Fault::DoesNotApply => cannot_apply(),
                // The real server answers 422 without a reason.
                json::Fault::CopiesTooMuch => ApiError::too_large(format!(
                    "The allowed size of all copies in a JSON patch is {} bytes",
                    json::COPIED_BYTES_MAX
                )),
            })?;
        }
        PatchType::Merge if patch.is_object() => json_patch::merge(&mut object, &patch),
        PatchType::Strategic if patch.is_object() => {
            let structure = Schema::get().kind(&call.resource.api_version(), call.resource.kind);
            // The real server does not foresee these faults, so the Status has no reason.
            strategic::merge(&mut object, patch, structure)
                .map_err(|fault| ApiError::new(500, "", message(fault)))?;
        }
        _ => return Err(wrong_type(&patch, "map[string]interface {}")),
    }
    Ok(object)
}

fn message(fault: strategic::Fault) -> String {
    match fault {
        strategic::Fault::UnknownDirective(directive) => {
            format!("unknown patch type: {directive} in map: map[$patch:{directive}]")
        }
        strategic::Fault::NoMergeKey { item, key } => {
            format!("map: {} does not contain declared merge key: {key}", go_map(&item))
        }
    }
}

fn wrong_type(patch: &Value, wanted: &str) -> Box<ApiError> {
    let found = describe(patch);
    ApiError::bad_request(format!(
        "error decoding patch: json: cannot unmarshal {found} into Go value of type {wanted}"
    ))
}

/// The refusal of a JSON patch that does not fit the object. The real server does not show the reason.
fn cannot_apply() -> Box<ApiError> {
    let message = "the server rejected our request due to an error in our request";
    ApiError::new(422, "Invalid", message).with_details(json!({}))
}

/// A value as Go prints it.
fn go_map(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name}:{}", go_map(value));
            format!("map[{}]", fields.iter().map(field).collect::<Vec<_>>().join(" "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(go_map).collect::<Vec<_>>().join(" ")),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
