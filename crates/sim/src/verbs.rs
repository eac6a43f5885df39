//! The verbs of the API, on one locked [`State`].
//!
//! A write passes `body` (decoding), `defaults`, `admission` and [`crate::validate`] before it is stored.

pub(crate) mod admission;
pub(crate) mod body;
pub(crate) mod create;
mod defaults;
pub(crate) mod delete;
pub(crate) mod events;
pub(crate) mod list;
mod patch;
mod pods;
mod scale;
mod update;

use std::sync::Arc;

use serde_json::{Value, json};

use self::events::to_view;
use crate::field::FieldErrors;
use crate::http::route::{Call, Verb};
use crate::object;
use crate::registry::ENDPOINTS;
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::storage::Key;

/// The largest object as stored: etcd's default for one request.
const OBJECT_BYTES_MAX: usize = 1024 * 1024 * 3 / 2;

/// The most bytes of the name of a field manager.
const MANAGER_BYTES_MAX: usize = 128;

const ENDPOINTS_DEPRECATED: &str =
    "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

/// The answer to an accepted request.
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

/// Serves a request, except for watches.
pub(crate) fn serve(state: &mut State, call: &Call) -> ApiResult<Answer> {
    check_options(call)?;
    let mut answer = answer(state, call)?;
    if call.resource.kind == ENDPOINTS {
        answer.warnings.push(ENDPOINTS_DEPRECATED.to_owned());
    }
    Ok(answer)
}

fn answer(state: &mut State, call: &Call) -> ApiResult<Answer> {
    if call.subresource == "scale" {
        return scale::serve(state, call);
    }
    match call.verb {
        Verb::Get => get(state, call),
        Verb::List | Verb::Watch => list::list(state, call),
        Verb::Create => create::create(state, call),
        Verb::Update => update::put(state, call),
        Verb::Patch => patch::patch(state, call),
        Verb::Delete => delete::delete(state, call),
        Verb::DeleteCollection => delete::delete_collection(state, call),
    }
}

fn get(state: &State, call: &Call) -> ApiResult<Answer> {
    list::requested_version(call, state, |why| ApiError::new(500, "", why))?;
    Ok(Answer::ok(to_view(call.resource, &*existing(state, call)?)))
}

/// The object that a request names.
fn existing(state: &State, call: &Call) -> ApiResult<Arc<Value>> {
    let key = Key::new(&call.namespace, &call.name);
    let found = state.store.get(call.resource.kind, &key).cloned();
    found.ok_or_else(|| ApiError::not_found(call.resource, &call.name))
}

/// Refuses an object that etcd would not store.
fn check_size(stored: &Value) -> ApiResult<()> {
    if object::json_bytes(stored) <= OBJECT_BYTES_MAX {
        return Ok(());
    }
    // The real server does not foresee this error of its storage, so the Status has no reason.
    Err(ApiError::new(500, "", "etcdserver: request is too large"))
}

/// Refuses malformed query parameters.
fn check_options(call: &Call) -> ApiResult<()> {
    let options = match call.verb {
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        // A deletion checks its options when it reads them, as they may be in its body.
        _ => return Ok(()),
    };
    let mut errors = FieldErrors::default();
    let manager = call.query.get("fieldManager");
    if call.is_apply() && manager.is_empty() {
        errors.required("fieldManager", "is required for apply patch");
    }
    if !call.is_apply() && call.verb == Verb::Patch && call.query.has("force") {
        errors.forbidden("force", "may not be specified for non-apply patch");
    }
    if manager.len() > MANAGER_BYTES_MAX {
        errors.too_long("fieldManager", MANAGER_BYTES_MAX);
    }
    check_dry_run(&mut errors, &call.query.all("dryRun").collect::<Vec<_>>());
    let directive = call.query.get("fieldValidation");
    errors.one_of("fieldValidation", directive, &["", "Ignore", "Strict", "Warn"]);
    ApiError::check(options, "meta.k8s.io", "", &errors)
}

fn check_dry_run(errors: &mut FieldErrors, values: &[&str]) {
    if values.iter().any(|value| *value != "All") {
        errors.not_supported("dryRun", values.to_vec(), &["All"]);
    }
}

/// A `metav1.Status` of success.
fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
}
