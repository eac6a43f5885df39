//! PUT, and what PUT and PATCH share.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::{Answer, check_name, check_namespace, decode, to_stored, to_view};
use crate::negotiate::{check_kind, read_object};
use crate::object;
use crate::request::Call;
use crate::state::State;
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::Key;
use crate::{admission, defaults, validate};

const LOCK_MESSAGE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

pub(super) fn put(state: &mut State, call: &Call, content_type: &str, body: &Bytes) -> ApiResult<Answer> {
    let mut value = read_object(content_type, call.resource.kind, body)?;
    check_kind(call.resource, &mut value)?;
    let mut warnings = Vec::new();
    let mut value = decode(call, value, &mut warnings)?;
    check_name(&call.name, &mut value)?;
    check_namespace(call.resource, &call.namespace, &mut value)?;
    let key = Key::new(&call.namespace, &call.name);
    let Some(existing) = state.store.get(call.stored_as(), &key).cloned() else {
        if call.resource.create_on_update && call.subresource.is_empty() {
            object::meta_mut(&mut value).remove("resourceVersion");
            let created = super::create::insert(state, call, value, &mut warnings)?;
            return Ok(Answer { code: 201, body: created, warnings });
        }
        return Err(ApiError::not_found(call.resource, &call.name));
    };
    check_uid(call, &existing, &value)?;
    let body = replace(state, call, &existing, value, &mut warnings)?;
    Ok(Answer { code: 200, body, warnings })
}

/// A PUT whose object has another UID is meant for another object.
fn check_uid(call: &Call, existing: &Value, value: &Value) -> ApiResult<()> {
    let (given, is) = (object::uid(value), object::uid(existing));
    if given.is_empty() || given == is {
        return Ok(());
    }
    let key = call.resource.storage_key(&call.namespace, &call.name);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
         failed: UID in precondition: {given}, UID in object meta: {is}"
    );
    Err(ApiError::conflict(call.resource, &call.name, &why))
}

/// Puts a decoded object in the place of an existing one, after all checks. Answers it as it is then.
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
    // Objects that were seeded without defaults keep their form; they are compared as if both had them.
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
    let errors = validate::update(resource, &call.subresource, &new_with_defaults, &old_with_defaults);
    if state.strategies && !errors.is_empty() {
        return Err(ApiError::invalid(resource.kind, resource.group, &call.name, &errors));
    }
    if call.subresource.is_empty() {
        admission::on_update(state, resource, &value, &old)?;
        warnings.extend(validate::warnings(resource, &value));
    }
    store(state, call, existing, &old, value)
}

/// Refuses a stale object. One without a version is taken for the newest, where the kind allows it.
fn check_version(call: &Call, old: &Value, value: &mut Value) -> ApiResult<()> {
    let current = object::resource_version(old).to_owned();
    let given = object::resource_version(value);
    if given.is_empty() || given == "0" {
        if !call.resource.unconditional_update {
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            let resource = call.resource;
            return Err(ApiError::invalid(resource.plural, resource.group, &call.name, &[error]));
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

/// What only the server may change is taken from the existing object.
fn prepare(state: &State, call: &Call, old: &Value, value: &mut Value) {
    let old_meta = |field: &str| object::meta_field(old, field).cloned();
    defaults::prepare_for_update(call.resource, &call.subresource, old, value, &state.clock);
    let changed = call.resource.generation && value.get("spec") != old.get("spec");
    let metadata = object::meta_mut(value);
    let generation = old_meta("generation").and_then(|generation| generation.as_i64()).unwrap_or(0);
    let generation = generation.saturating_add(i64::from(changed));
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
    object::set(metadata, "managedFields", old_meta("managedFields"));
}

fn store(state: &mut State, call: &Call, existing: &Value, old: &Value, value: Value) -> ApiResult<Value> {
    let resource = call.resource;
    let grace = object::meta_field(old, "deletionGracePeriodSeconds").and_then(Value::as_i64);
    let finalized = state.strategies
        && object::is_deleting(old)
        && object::finalizers(&value).is_empty()
        && grace.unwrap_or(0) == 0
        && (resource.kind != "Namespace" || object::items(&value, "/spec/finalizers").is_empty());
    let stored = to_stored(resource, value);
    if call.is_dry_run() || stored == *existing {
        // A write that changes nothing makes no version.
        return Ok(to_view(resource, &stored));
    }
    if finalized {
        state.remove(resource.stored_as, &Key::of(&stored));
        return Ok(to_view(resource, &stored));
    }
    let stored = state.put(resource.stored_as, stored);
    Ok(to_view(resource, &stored))
}
