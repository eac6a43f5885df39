//! What each verb does.

pub(crate) mod create;
mod delete;
mod events;
mod get;
mod list;
mod patch;
mod pods;
mod update;
pub(crate) mod watch;

use bytes::Bytes;
use serde_json::Value;

pub(crate) use delete::{Options as DeleteOptions, delete_object, mark_deleting};
pub(crate) use events::{to_stored, to_view};

use crate::object;
use crate::registry::Resource;
use crate::request::{Call, Verb};
use crate::schema;
use crate::state::State;
use crate::status::{ApiError, ApiResult, FieldError};

/// An answer to a request that was not refused.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    fn ok(body: Value) -> Self {
        Answer { code: 200, body, warnings: Vec::new() }
    }
}

/// Serves a request, but for watches.
pub(crate) fn dispatch(
    state: &mut State,
    call: &Call,
    content_type: &str,
    body: &Bytes,
) -> ApiResult<Answer> {
    check_options(call)?;
    match call.verb {
        Verb::Get => get::get(state, call),
        Verb::List | Verb::Watch => list::list(state, call),
        Verb::Create => create::create(state, call, content_type, body),
        Verb::Update => update::put(state, call, content_type, body),
        Verb::Patch => patch::patch(state, call, content_type, body),
        Verb::Delete => delete::delete(state, call, content_type, body),
        Verb::DeleteCollection => delete::delete_collection(state, call, content_type, body),
    }
}

/// Refuses values of query parameters that the real server refuses.
fn check_options(call: &Call) -> ApiResult<()> {
    let options = match call.verb {
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        // Deletions may have theirs in the body; they are checked where they are read.
        _ => return Ok(()),
    };
    let mut errors = Vec::new();
    let dry_run: Vec<&str> = call.query.all("dryRun").collect();
    errors.extend(check_dry_run(&dry_run));
    let directive = call.query.get("fieldValidation");
    if !matches!(directive, "" | "Ignore" | "Warn" | "Strict") {
        errors.push(FieldError::not_supported(
            "fieldValidation",
            directive,
            &["", "Ignore", "Strict", "Warn"],
        ));
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(options, "meta.k8s.io", "", &errors)) }
}

/// Everything or nothing is only tried.
fn check_dry_run(values: &[&str]) -> Option<FieldError> {
    let unknown = values.iter().any(|value| *value != "All");
    unknown.then(|| FieldError::not_supported("dryRun", values.to_vec(), &["All"]))
}

/// Decodes an object by its kind, and treats unknown fields as `fieldValidation` asks.
fn decode(call: &Call, value: Value, warnings: &mut Vec<String>) -> ApiResult<Value> {
    let (version, kind) = (call.resource.api_version(), call.resource.kind);
    let refuse = |why: String| {
        let message =
            format!("{kind} in version {:?} cannot be handled as a {kind}: {why}", crate::registry::VERSION);
        ApiError::bad_request(message)
    };
    let decoded = schema::decode(&version, kind, value).map_err(refuse)?;
    if !decoded.unknown.is_empty() {
        match call.query.get("fieldValidation") {
            "Strict" => return Err(refuse(format!("strict decoding error: {}", decoded.unknown.join(", ")))),
            "Ignore" => {}
            _ => warnings.extend(decoded.unknown),
        }
    }
    Ok(decoded.object)
}

/// Refuses an object whose namespace is not the request's, and fills it in.
fn check_namespace(resource: &Resource, namespace: &str, value: &mut Value) -> ApiResult<()> {
    let given = object::namespace(value);
    if !resource.namespaced {
        if !given.is_empty() {
            object::meta_mut(value).remove("namespace");
        }
        return Ok(());
    }
    if given.is_empty() {
        object::meta_mut(value).insert("namespace".to_owned(), namespace.into());
        return Ok(());
    }
    if given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Refuses an object whose name is not the one in the path, and fills it in.
fn check_name(name: &str, value: &mut Value) -> ApiResult<()> {
    let given = object::name(value);
    if given.is_empty() {
        let message =
            format!("the name of the object ({name} based on URL) was undeterminable: name must be provided");
        return Err(ApiError::bad_request(message));
    }
    if given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}
