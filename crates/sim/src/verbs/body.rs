//! From the body of a request to an object.

use serde_json::Value;
use serde_saphyr::UserMessageFormatter;

use crate::http::accept::{JSON, PROTOBUF, YAML, is_yaml};
use crate::http::route::Call;
use crate::object;
use crate::protobuf;
use crate::registry::{self, Resource, VERSION};
use crate::schema;
use crate::status::{ApiError, ApiResult};

/// Reads the object in a body by its media type.
pub(crate) fn read(call: &Call, kind: &str) -> ApiResult<Value> {
    let body = &call.body;
    let parsed = match call.media_type() {
        "" | JSON => serde_json::from_slice(body).map_err(|error| error.to_string()),
        other if is_yaml(other) => {
            serde_saphyr::from_slice(body).map_err(|error| error.render_with_formatter(&UserMessageFormatter))
        }
        PROTOBUF => protobuf::read(body).ok_or_else(|| "the body is not protobuf of a known kind".to_owned()),
        _ => {
            return Err(ApiError::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: {JSON}, \
                 {YAML}, {PROTOBUF}"
            )));
        }
    };
    let why = match parsed {
        Ok(value @ Value::Object(_)) => return Ok(value),
        Ok(_) => "the body is not an object".to_owned(),
        Err(_) if body.is_empty() => "unexpected end of JSON input (<empty>)".to_owned(),
        Err(why) => why,
    };
    Err(ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse \
         error: {why}"
    )))
}

/// Reads and decodes the object of a creation or an update.
pub(super) fn read_and_decode(call: &Call, warnings: &mut Vec<String>) -> ApiResult<Value> {
    let mut value = read(call, call.resource.kind)?;
    check_kind(call.resource, &mut value)?;
    let kind = call.resource.kind;
    let refuse = |why| {
        ApiError::bad_request(format!("{kind} in version {VERSION:?} cannot be handled as a {kind}: {why}"))
    };
    decode(call, value, warnings).map_err(refuse)
}

/// Decodes an object, and reports unknown fields as `fieldValidation` says. The error is the text of Go's
/// decoder.
pub(super) fn decode(call: &Call, value: Value, warnings: &mut Vec<String>) -> Result<Value, String> {
    let decoded = schema::decode(&call.resource.api_version(), call.resource.kind, value)?;
    match call.query.get("fieldValidation") {
        "Strict" if !decoded.unknown.is_empty() => {
            return Err(format!("strict decoding error: {}", decoded.unknown.join(", ")));
        }
        "Ignore" => {}
        _ => warnings.extend(decoded.unknown),
    }
    Ok(decoded.object)
}

/// Upstream's message for an object of a kind that does not belong to the path.
pub(super) fn wrong_kind(api_version: &str, kind: &str, wanted: &str) -> String {
    match registry::by_kind(api_version, kind) {
        Some(_) => format!("converting (v1.{kind}) to (core.{wanted}): unknown conversion"),
        None => unknown_kind(api_version, kind),
    }
}

/// Upstream's message for an unknown kind.
pub(super) fn unknown_kind(api_version: &str, kind: &str) -> String {
    format!(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )
}

/// Refuses an object whose kind does not belong to the path, and fills in a missing kind and version.
fn check_kind(resource: &Resource, value: &mut Value) -> ApiResult<()> {
    let wanted = (resource.api_version(), resource.kind);
    let given = |pointer: &str, otherwise: &str| match object::text(value, pointer) {
        "" => otherwise.to_owned(),
        given => given.to_owned(),
    };
    let (api_version, kind) = (given("/apiVersion", &wanted.0), given("/kind", wanted.1));
    if kind != wanted.1 || api_version != wanted.0 {
        let why = wrong_kind(&api_version, &kind, wanted.1);
        let version = api_version.rsplit('/').next().unwrap_or("");
        let wanted = wanted.1;
        return Err(ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {wanted}: {why}"
        )));
    }
    value["apiVersion"] = wanted.0.into();
    value["kind"] = wanted.1.into();
    Ok(())
}

/// Refuses an object whose namespace is not the request's, and fills in a missing one.
pub(super) fn check_namespace(call: &Call, value: &mut Value) -> ApiResult<()> {
    let given = object::namespace(value);
    if !call.resource.namespaced {
        if !given.is_empty() {
            object::meta_mut(value).remove("namespace");
        }
    } else if given.is_empty() {
        object::meta_mut(value).insert("namespace".to_owned(), call.namespace.as_str().into());
    } else if given != call.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Refuses an object whose name is not the one in the path.
pub(super) fn check_name(call: &Call, value: &Value) -> ApiResult<()> {
    let (given, name) = (object::name(value), &call.name);
    if given.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}
