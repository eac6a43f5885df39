//! Validation: the checks of `pkg/apis/core/validation` and `pkg/apis/storage/validation`, with the same
//! fields, words and causes for volumes and claims; the other kinds loosely.

mod claim;
mod diff;
mod labels;
mod meta;
mod names;
mod others;
mod sources;
mod storage;
mod volume;

use serde_json::Value;

pub(crate) use names::{label_value as label_value_faults, qualified as qualified_faults};

use crate::object;
use crate::registry::Resource;
use crate::status::FieldError;

/// What is wrong with an object to be created.
pub(crate) fn create(resource: &Resource, value: &Value) -> Vec<FieldError> {
    let errors = whole(resource, value);
    if errors.is_empty() { meta::check(resource, value, meta::Name::PathSegment) } else { errors }
}

/// What is wrong with an update of an object or its status. Both are complete and have their defaults.
///
/// An object that was seeded past validation may keep the faults that it has, but not get new ones.
pub(crate) fn update(resource: &Resource, subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = meta::check(resource, new, meta::Name::PathSegment);
    errors.extend(meta::check_update(new, old));
    errors.extend(match (resource.kind, subresource) {
        ("PersistentVolume", "") => volume::check_update(resource, new, old),
        ("PersistentVolumeClaim", "") => claim::check_update(resource, new, old),
        ("PersistentVolumeClaim", "status") => claim::check_status_update(new, old),
        (_, "status") => meta::check_update(new, old),
        _ => {
            let mut errors = whole(resource, new);
            errors.extend(others::check_update(resource, new, old));
            errors
        }
    });
    if !errors.is_empty() {
        let mut had = whole(resource, old);
        had.extend(meta::check(resource, old, meta::Name::PathSegment));
        errors.retain(|error| !had.contains(error));
    }
    errors
}

/// All checks of one object by itself.
fn whole(resource: &Resource, value: &Value) -> Vec<FieldError> {
    match resource.kind {
        "PersistentVolume" => volume::check(resource, value),
        "PersistentVolumeClaim" => claim::check(resource, value),
        "StorageClass" => storage::class(resource, value),
        "VolumeAttributesClass" => storage::attributes_class(resource, value),
        "VolumeAttachment" => storage::attachment(resource, value),
        "CSIDriver" => storage::driver(resource, value),
        "CSINode" => storage::node(resource, value),
        "CSIStorageCapacity" => storage::capacity(resource, value),
        _ => others::check(resource, value),
    }
}

/// What the server warns of.
pub(crate) fn warnings(resource: &Resource, value: &Value) -> Vec<String> {
    match resource.kind {
        "PersistentVolume" => volume::warnings(value),
        "PersistentVolumeClaim" => claim::warnings(value),
        _ => Vec::new(),
    }
}

/// Refuses a change of a field.
fn immutable(new: Option<&Value>, old: Option<&Value>, field: &str) -> Option<FieldError> {
    let absent = Value::Null;
    let (new, old) = (new.unwrap_or(&absent), old.unwrap_or(&absent));
    (new != old).then(|| FieldError::invalid(field, new.clone(), "field is immutable"))
}

/// One error per message.
fn each(field: &str, value: &str, messages: Vec<String>) -> impl Iterator<Item = FieldError> {
    messages.into_iter().map(move |message| FieldError::invalid(field, value, message))
}

/// A text that must be there.
fn required(errors: &mut Vec<FieldError>, value: &Value, pointer: &str, field: &str) {
    if object::text(value, pointer).is_empty() {
        errors.push(FieldError::required(field, ""));
    }
}

/// The access modes of volumes and claims.
fn access_modes(errors: &mut Vec<FieldError>, spec: &Value) {
    const KNOWN: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let modes = object::texts(spec.get("accessModes"));
    for mode in &modes {
        if !KNOWN.contains(mode) {
            errors.push(FieldError::not_supported("spec.accessModes", *mode, &KNOWN));
        }
    }
    let other = |mode: &&str| *mode != "ReadWriteOncePod" && KNOWN.contains(mode);
    if modes.contains(&"ReadWriteOncePod") && modes.iter().any(other) {
        let why = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden("spec.accessModes", why));
    }
}

/// The volume mode of volumes and claims.
fn volume_mode(errors: &mut Vec<FieldError>, spec: &Value) {
    if let Some(mode) = spec.get("volumeMode").and_then(Value::as_str)
        && !matches!(mode, "Block" | "Filesystem")
    {
        errors.push(FieldError::not_supported("spec.volumeMode", mode, &["Block", "Filesystem"]));
    }
}
