//! POST.

use serde_json::{Value, json};

use super::events::{to_stored, to_view};
use super::{Answer, admission, body, check_size, defaults, pods};
use crate::http::route::Call;
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::storage::Key;
use crate::{object, registry, validate};

/// How many names are tried for an object with a generated name.
const GENERATE_ATTEMPTS_MAX: usize = 8;

pub(super) fn create(state: &mut State, call: &Call) -> ApiResult<Answer> {
    if !call.subresource.is_empty() {
        return pods::create_subresource(state, call);
    }
    let mut warnings = Vec::new();
    let mut value = body::read_and_decode(call, &mut warnings)?;
    if call.resource.group == registry::AUTHORIZATION {
        return Ok(Answer { code: 201, body: review(value), warnings });
    }
    body::check_namespace(call, &mut value)?;
    let created = insert(state, call, value, &mut warnings)?;
    Ok(Answer { code: 201, body: created, warnings })
}

/// Answers a review of access: everything is allowed.
fn review(mut review: Value) -> Value {
    const WHY: &str = "the simulator has no RBAC: everything is allowed";
    review["status"] = match review["kind"].as_str() {
        Some("SelfSubjectRulesReview") => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        _ => json!({"allowed": true, "reason": WHY}),
    };
    review
}

/// Creates a decoded object. Generates a missing name.
pub(crate) fn insert(
    state: &mut State,
    call: &Call,
    value: Value,
    warnings: &mut Vec<String>,
) -> ApiResult<Value> {
    let base = object::meta_text(&value, "generateName").to_owned();
    if !object::name(&value).is_empty() || base.is_empty() {
        return insert_named(state, call, value, warnings);
    }
    let mut attempts = 1;
    loop {
        let mut named = value.clone();
        let name = state.generate_name(&base);
        object::meta_mut(&mut named).insert("name".to_owned(), name.into());
        match insert_named(state, call, named, warnings) {
            Err(error) if error.reason == "AlreadyExists" && attempts < GENERATE_ATTEMPTS_MAX => {
                attempts += 1
            }
            other => return other,
        }
    }
}

fn insert_named(
    state: &mut State,
    call: &Call,
    mut value: Value,
    warnings: &mut Vec<String>,
) -> ApiResult<Value> {
    let resource = call.resource;
    if !object::resource_version(&value).is_empty() && !call.is_apply() {
        // The real server does not foresee this error of its storage, so the Status has no reason.
        return Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    if state.strategies {
        defaults::apply(resource, &mut value);
        admission::on_create(state, resource, &mut value)?;
    }
    let (uid, now) = (state.new_uid(), state.clock.now_text());
    let metadata = object::meta_mut(&mut value);
    metadata.insert("uid".to_owned(), uid.into());
    metadata.insert("creationTimestamp".to_owned(), now.into());
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(field);
    }
    if !call.is_apply() {
        metadata.remove("managedFields");
    }
    // The first generation of a CSIDriver is 0.
    if resource.generation && resource.kind != "CSIDriver" {
        metadata.insert("generation".to_owned(), 1.into());
    }
    if state.strategies {
        defaults::prepare_for_create(resource, &mut value, &state.clock);
        let errors = validate::create(resource, &value);
        ApiError::check(resource.kind, resource.group, object::name(&value), &errors)?;
    }
    warnings.extend(validate::warnings(resource, &value));
    let key = Key::of(&value);
    if let Some(existing) = state.store.get(resource.kind, &key) {
        let mut error = ApiError::already_exists(resource, &key.name);
        if object::is_deleting(existing) {
            error.message = format!("object is being deleted: {}", error.message);
        }
        return Err(error);
    }
    if call.is_dry_run() {
        return Ok(value);
    }
    let stored = to_stored(resource, value);
    check_size(&stored)?;
    Ok(to_view(resource, &state.put(resource.kind, stored)))
}
