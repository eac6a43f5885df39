//! Validation: the checks of `pkg/apis/core/validation` and `pkg/apis/storage/validation`.
//!
//! Volumes and claims are checked with the fields, words and causes of the real server, other kinds loosely.

mod claim;
mod diff;
mod labels;
mod meta;
mod names;
mod others;
mod sources;
mod storage;
mod volume;

use std::ops::RangeInclusive;

use serde_json::Value;

pub(crate) use names::{label_value as label_value_faults, qualified as qualified_faults};

use crate::field::FieldErrors;
use crate::object;
use crate::registry::{CLAIM, Resource, STATEFUL_SET, VOLUME};

/// The errors of an object to be created.
pub(crate) fn create(resource: &Resource, value: &Value) -> FieldErrors {
    let mut errors = whole(resource, value);
    if errors.is_empty() {
        meta::check(&mut errors, resource, value, meta::Name::PathSegment);
    }
    errors
}

/// The errors of an update of an object or its status. Both objects are complete and have their defaults.
///
/// An object that was seeded past validation may keep its errors, but not get new ones.
pub(crate) fn update(resource: &Resource, subresource: &str, new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    meta::check(&mut errors, resource, new, meta::Name::PathSegment);
    meta::check_update(&mut errors, new, old);
    match (resource.kind, subresource) {
        (VOLUME, "") => {
            errors.extend(whole(resource, new));
            volume::check_update(&mut errors, resource, new, old);
        }
        (CLAIM, "") => {
            meta::check_update(&mut errors, new, old);
            errors.extend(whole(resource, new));
            claim::check_update(&mut errors, new, old);
        }
        (CLAIM, "status") => {
            meta::check_update(&mut errors, new, old);
            claim::check_status(&mut errors, new, old);
        }
        (_, "status") => meta::check_update(&mut errors, new, old),
        _ => {
            errors.extend(whole(resource, new));
            others::check_update(&mut errors, resource, new, old);
        }
    }
    if !errors.is_empty() {
        let mut had = whole(resource, old);
        meta::check(&mut had, resource, old, meta::Name::PathSegment);
        errors.subtract(&had);
    }
    errors
}

/// The errors of one object by itself.
fn whole(resource: &Resource, value: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    match (resource.group, resource.kind) {
        // Only the rules for all objects apply to its metadata.
        ("", "Event") => {}
        (_, "Namespace") => meta::check(&mut errors, resource, value, meta::Name::Label),
        _ => meta::check(&mut errors, resource, value, meta::Name::Subdomain),
    }
    match resource.kind {
        VOLUME => volume::check(&mut errors, value),
        CLAIM => claim::check(&mut errors, value),
        "StorageClass" => storage::class(&mut errors, value),
        "VolumeAttributesClass" => storage::attributes_class(&mut errors, value),
        "VolumeAttachment" => storage::attachment(&mut errors, value),
        "CSIDriver" => storage::driver(&mut errors, value),
        "CSINode" => storage::node(&mut errors, value),
        "CSIStorageCapacity" => storage::capacity(&mut errors, value),
        "Pod" => others::pod(&mut errors, value),
        "Lease" => others::lease(&mut errors, value),
        "Event" => others::event(&mut errors, value),
        _ => {}
    }
    errors
}

/// The warnings for an object that passed.
pub(crate) fn warnings(resource: &Resource, value: &Value) -> Vec<String> {
    match resource.kind {
        VOLUME => volume::warnings(value),
        CLAIM => claim::warnings(value),
        STATEFUL_SET => vec!["the claims of this StatefulSet are created here, and no pods".to_owned()],
        kind if resource.not_run => {
            vec![format!("this {kind} is stored here, and nothing runs it")]
        }
        _ => Vec::new(),
    }
}

/// A rule returns the faults of a text.
type Rule = fn(&str) -> Vec<String>;

fn field_text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

/// Refuses missing texts of the object at the path `at`.
fn required(errors: &mut FieldErrors, value: &Value, at: &str, fields: &[&str]) {
    for field in fields.iter().filter(|field| field_text(value, field).is_empty()) {
        errors.required(format!("{at}.{field}"), "");
    }
}

/// Refuses a missing or malformed name.
fn required_name(errors: &mut FieldErrors, value: &Value, at: &str, field: &str, rule: Rule) {
    required(errors, value, at, &[field]);
    optional_name(errors, value, at, field, rule);
}

/// Refuses a malformed name.
fn optional_name(errors: &mut FieldErrors, value: &Value, at: &str, field: &str, rule: Rule) {
    let name = field_text(value, field);
    if !name.is_empty() {
        errors.check(format!("{at}.{field}"), name, rule);
    }
}

/// Refuses a number outside of a range.
fn in_range(
    errors: &mut FieldErrors,
    value: &Value,
    at: &str,
    field: &str,
    range: RangeInclusive<i64>,
    why: &str,
) {
    if let Some(number) = value[field].as_i64().filter(|number| !range.contains(number)) {
        errors.invalid(format!("{at}.{field}"), number, why);
    }
}

/// The access modes of volumes and claims.
fn access_modes(errors: &mut FieldErrors, spec: &Value) {
    const KNOWN: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let modes = object::texts(spec.get("accessModes"));
    for mode in &modes {
        errors.one_of("spec.accessModes", mode, &KNOWN);
    }
    let other = |mode: &&str| *mode != "ReadWriteOncePod" && KNOWN.contains(mode);
    if modes.contains(&"ReadWriteOncePod") && modes.iter().any(other) {
        errors.forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes");
    }
}

/// The volume mode of volumes and claims.
fn volume_mode(errors: &mut FieldErrors, spec: &Value) {
    if let Some(mode) = spec.get("volumeMode").and_then(Value::as_str) {
        errors.one_of("spec.volumeMode", mode, &["Block", "Filesystem"]);
    }
}
