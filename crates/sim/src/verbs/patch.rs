//! PATCH.

use bytes::Bytes;
use serde_json::Value;

use super::{Answer, check_name, check_namespace, to_view, update};
use crate::negotiate::wrong_kind;
use crate::object;
use crate::patch::{self, Kind};
use crate::request::Call;
use crate::schema;
use crate::state::State;
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::Key;

pub(super) fn patch(state: &mut State, call: &Call, content_type: &str, body: &Bytes) -> ApiResult<Answer> {
    let kind = Kind::of(content_type)?;
    let key = Key::new(&call.namespace, &call.name);
    let existing = state
        .store
        .get(call.stored_as(), &key)
        .cloned()
        .ok_or_else(|| ApiError::not_found(call.resource, &call.name))?;
    let view = to_view(call.resource, &existing);
    let patched = patch::apply(kind, call.resource, &view, body)?;
    let mut warnings = Vec::new();
    let mut value = decode(call, patched, &mut warnings)?;
    check_namespace(call.resource, &call.namespace, &mut value)?;
    check_name(&call.name, &mut value)?;
    let body = update::replace(state, call, &existing, value, &mut warnings)?;
    Ok(Answer { code: 200, body, warnings })
}

/// Decodes the patched object; what does not decode is the patch's fault.
fn decode(call: &Call, patched: Value, warnings: &mut Vec<String>) -> ApiResult<Value> {
    let text = patched.to_string();
    let refuse = |why: String| {
        let error = FieldError::invalid("patch", text.as_str(), why);
        ApiError::invalid("", "", "", &[error])
    };
    let wanted = (call.resource.api_version(), call.resource.kind);
    let given = (object::text(&patched, "/apiVersion"), object::text(&patched, "/kind"));
    if given != (wanted.0.as_str(), wanted.1) {
        return Err(refuse(wrong_kind(given, wanted.1)));
    }
    let decoded =
        schema::decode(&call.resource.api_version(), call.resource.kind, patched).map_err(refuse)?;
    if !decoded.unknown.is_empty() {
        match call.query.get("fieldValidation") {
            "Strict" => return Err(refuse(format!("strict decoding error: {}", decoded.unknown.join(", ")))),
            "Ignore" => {}
            _ => warnings.extend(decoded.unknown),
        }
    }
    Ok(decoded.object)
}
