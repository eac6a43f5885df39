//! PUT, and the steps that PUT and PATCH share.

use std::sync::Arc;

use serde_json::Value;

use super::events::{to_stored, to_view};
use super::{Answer, admission, body, check_size, create, defaults, existing};
use crate::field::FieldErrors;
use crate::fields;
use crate::http::route::Call;
use crate::object::{self, meta_number};
use crate::registry::NAMESPACE;
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::storage::Key;
use crate::validate;

const LOCK_MESSAGE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

pub(super) fn put(state: &mut State, call: &Call) -> ApiResult<Answer> {
    let mut warnings = Vec::new();
    let mut value = body::read_and_decode(call, &mut warnings)?;
    body::check_name(call, &value)?;
    body::check_namespace(call, &mut value)?;
    let existing = match existing(state, call) {
        Err(_) if call.resource.create_on_update && call.subresource.is_empty() => {
            object::meta_mut(&mut value).remove("resourceVersion");
            let created = create::insert(state, call, value, &mut warnings)?;
            return Ok(Answer { code: 201, body: created, warnings });
        }
        found => found?,
    };
    check_uid(call, &existing, &value)?;
    let body = replace(state, call, &existing, value, &mut warnings)?;
    Ok(Answer { code: 200, body, warnings })
}

/// Refuses a PUT that is meant for an object with another UID.
fn check_uid(call: &Call, existing: &Value, value: &Value) -> ApiResult<()> {
    let (given, is) = (object::uid(value), object::uid(existing));
    if given.is_empty() || given == is {
        return Ok(());
    }
    let key = call.resource.storage_key(&call.namespace, &call.name);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {given}, UID in object meta: {is}"
    );
    Err(ApiError::conflict(call.resource, &call.name, &why))
}

/// Replaces an object by a decoded one after all checks, and returns the new state.
pub(super) fn replace(
    state: &mut State,
    call: &Call,
    existing: &Arc<Value>,
    mut value: Value,
    warnings: &mut Vec<String>,
) -> ApiResult<Value> {
    let resource = call.resource;
    let old = to_view(resource, existing);
    check_version(call, &old, &mut value)?;
    // An object that was seeded without defaults stays without; the comparison adds them to both objects.
    let mut old_with_defaults = old.clone();
    defaults::apply(resource, &mut old_with_defaults);
    let was_defaulted = old_with_defaults == old;
    if was_defaulted {
        defaults::apply(resource, &mut value);
    }
    prepare(state, call, &old, &mut value);
    let mut new_with_defaults = value.clone();
    if !was_defaulted {
        defaults::apply(resource, &mut new_with_defaults);
    }
    if state.strategies {
        let errors = validate::update(resource, &call.subresource, &new_with_defaults, &old_with_defaults);
        ApiError::check(resource.kind, resource.group, &call.name, &errors)?;
    }
    if call.subresource.is_empty() {
        admission::on_update(state, resource, &value, &old)?;
        warnings.extend(validate::warnings(resource, &value));
    }
    store(state, call, existing, &old, value)
}

/// Refuses an outdated object. An object without a version counts as current if the kind permits it.
fn check_version(call: &Call, old: &Value, value: &mut Value) -> ApiResult<()> {
    let current = object::resource_version(old).to_owned();
    let given = object::resource_version(value);
    if given.is_empty() || given == "0" {
        if !call.resource.unconditional_update {
            let mut errors = FieldErrors::default();
            errors.invalid("metadata.resourceVersion", 0, "must be specified for an update");
            let resource = call.resource;
            return Err(ApiError::invalid(resource.plural, resource.group, &call.name, &errors));
        }
        object::meta_mut(value).insert("resourceVersion".to_owned(), current.into());
        return Ok(());
    }
    if given.parse::<u64>().is_err() {
        let message = format!("strconv.ParseUint: parsing {given:?}: invalid syntax");
        return Err(ApiError::new(500, "", message));
    }
    if given != current {
        return Err(ApiError::conflict(call.resource, &call.name, LOCK_MESSAGE));
    }
    Ok(())
}

/// Takes the fields that only the server may change from the existing object.
fn prepare(state: &State, call: &Call, old: &Value, value: &mut Value) {
    let old_meta = |field: &str| object::meta_field(old, field).cloned();
    defaults::prepare_for_update(call.resource, &call.subresource, old, value, &state.clock);
    let changed = call.resource.generation && value.get("spec") != old.get("spec");
    let metadata = object::meta_mut(value);
    let generation = meta_number(old, "generation").saturating_add(i64::from(changed));
    object::set(metadata, "generation", Some(generation.into()).filter(|_| generation > 0));
    if !metadata.contains_key("uid") {
        object::set(metadata, "uid", old_meta("uid"));
    }
    object::set(metadata, "creationTimestamp", old_meta("creationTimestamp"));
    if let Some(deletion) = old_meta("deletionTimestamp") {
        metadata.insert("deletionTimestamp".to_owned(), deletion);
    }
    if let Some(grace) = old_meta("deletionGracePeriodSeconds")
        && !metadata.contains_key("deletionGracePeriodSeconds")
    {
        metadata.insert("deletionGracePeriodSeconds".to_owned(), grace);
    }
    if !call.is_apply() {
        let managed = fields::after_update(call, old, value, &state.clock.now_text());
        object::set(object::meta_mut(value), "managedFields", managed);
    }
}

fn store(state: &mut State, call: &Call, existing: &Value, old: &Value, value: Value) -> ApiResult<Value> {
    let resource = call.resource;
    let finalized = state.strategies
        && object::is_deleting(old)
        && object::finalizers(&value).is_empty()
        && meta_number(old, "deletionGracePeriodSeconds") == 0
        && (resource.kind != NAMESPACE || object::items(&value, "/spec/finalizers").is_empty());
    let stored = to_stored(resource, value);
    // A write that changes nothing makes no version.
    if call.is_dry_run() || stored == *existing {
        return Ok(to_view(resource, &stored));
    }
    if finalized {
        state.remove(resource.kind, &Key::of(&stored));
        return Ok(to_view(resource, &stored));
    }
    check_size(&stored)?;
    Ok(to_view(resource, &state.put(resource.kind, stored)))
}
