//! Server-side apply.

use serde_json::Value;
use serde_saphyr::UserMessageFormatter;

use crate::fields;
use crate::http::route::Call;
use crate::object;
use crate::schema;
use crate::state::State;
use crate::status::{ApiError, ApiResult};

/// The object after an apply; `existing` is `None` if there was none.
pub(super) fn apply(state: &State, call: &Call, existing: Option<&Value>) -> ApiResult<Value> {
    let applied: Value = serde_saphyr::from_slice(&call.body).map_err(|error| {
        let why = error.render_with_formatter(&UserMessageFormatter);
        ApiError::bad_request(format!("error decoding YAML: {why}"))
    })?;
    check(call, &applied)?;
    let uid = object::uid(&applied);
    if existing.is_none() && !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(ApiError::conflict(call.resource, &call.name, &why));
    }
    fields::apply(call, existing, applied, &state.clock.now_text())
}

fn check(call: &Call, applied: &Value) -> ApiResult<()> {
    if !object::is_empty(object::meta_field(applied, "managedFields")) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let (api_version, kind) = (object::text(applied, "/apiVersion"), object::text(applied, "/kind"));
    let slash = if api_version.contains('/') { "" } else { "/" };
    let title = format!("{slash}{api_version}, Kind={kind}");
    if api_version != call.resource.api_version() || kind != call.resource.kind {
        return Err(ApiError::bad_request(format!("invalid object type: {title}")));
    }
    let why = match schema::decode(api_version, kind, applied.clone()) {
        Ok(decoded) => match decoded.unknown.last().and_then(|text| text.split('"').nth(1)) {
            Some(path) => format!(".{path}: field not declared in schema"),
            None => return Ok(()),
        },
        Err(why) => why,
    };
    let object = format!("{}/{}", call.namespace, call.name);
    // The real server does not foresee these faults, so the Status has no reason.
    let message = format!("failed to create typed patch object ({object}; {title}): {why}");
    Err(ApiError::new(500, "", message))
}
