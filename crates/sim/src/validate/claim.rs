//! Claims (`ValidatePersistentVolumeClaim…` of `pkg/apis/core/validation`).

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::{access_modes, diff, each, immutable, labels, meta, names, volume_mode};
use crate::object::{self, is_empty, items, meta_field, text};
use crate::quantity::Quantity;
use crate::registry::Resource;
use crate::status::FieldError;

const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const IMMUTABLE: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

/// The states of a resize that `status.allocatedResourceStatuses` may hold.
const RESIZE_STATES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// `ValidatePersistentVolumeClaim`.
pub(super) fn check(resource: &Resource, claim: &Value) -> Vec<FieldError> {
    let mut errors = meta::check(resource, claim, meta::Name::Subdomain);
    spec(&mut errors, &claim["spec"]);
    errors
}

fn spec(errors: &mut Vec<FieldError>, spec: &Value) {
    if items(spec, "/accessModes").is_empty() {
        errors.push(FieldError::required("spec.accessModes", "at least 1 access mode is required"));
    }
    if let Some(selector) = spec.get("selector") {
        labels::label_selector(errors, selector, "spec.selector");
    }
    access_modes(errors, spec);
    match spec.pointer("/resources/requests/storage").and_then(Value::as_str) {
        None => errors.push(FieldError::required("spec.resources[storage]", "")),
        Some(text) => {
            if Quantity::parse(text).is_ok_and(|quantity| quantity.sign() <= 0) {
                errors.push(FieldError::invalid(
                    "spec.resources[storage]",
                    text,
                    "must be greater than zero",
                ));
            }
        }
    }
    let class = text(spec, "/storageClassName");
    if !class.is_empty() {
        errors.extend(each("spec.storageClassName", class, names::subdomain(class)));
    }
    volume_mode(errors, spec);
    data_sources(errors, spec);
    let class = text(spec, "/volumeAttributesClassName");
    if !class.is_empty() {
        errors.extend(each("spec.volumeAttributesClassName", class, names::subdomain(class)));
    }
}

fn data_sources(errors: &mut Vec<FieldError>, spec: &Value) {
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    if let Some(source) = source {
        data_source(errors, source, "spec.dataSource");
    }
    let Some(reference) = reference else { return };
    data_source(errors, reference, "spec.dataSourceRef");
    let namespace = text(reference, "/namespace");
    if !namespace.is_empty() {
        errors.extend(each("spec.dataSourceRef.namespace", namespace, names::label(namespace)));
        if source.is_some() {
            let why = "may not be specified when dataSourceRef.namespace is specified";
            errors.push(FieldError::invalid("spec", json!({}), why));
        }
    } else if let Some(source) = source
        && ["apiGroup", "kind", "name"].iter().any(|part| source.get(part) != reference.get(part))
    {
        errors.push(FieldError::invalid("spec", json!({}), "must match dataSourceRef"));
    }
}

fn data_source(errors: &mut Vec<FieldError>, source: &Value, field: &str) {
    for part in ["name", "kind"] {
        if text(source, &format!("/{part}")).is_empty() {
            errors.push(FieldError::required(format!("{field}.{part}"), ""));
        }
    }
    let (group, kind) = (text(source, "/apiGroup"), text(source, "/kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(FieldError::invalid(field, kind, why));
    }
    if !group.is_empty() {
        errors.extend(each(&format!("{field}.apiGroup"), group, names::subdomain(group)));
    }
}

/// `ValidatePersistentVolumeClaimUpdate`.
pub(super) fn check_update(resource: &Resource, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = meta::check_update(new, old);
    errors.extend(check(resource, new));
    spec_change(&mut errors, new, old);
    sizes(&mut errors, new, old);
    errors.extend(immutable(new.pointer("/spec/volumeMode"), old.pointer("/spec/volumeMode"), "volumeMode"));
    attributes_class(&mut errors, new, old);
    errors
}

/// The spec may not change but for what the comments name.
fn spec_change(errors: &mut Vec<FieldError>, new: &Value, old: &Value) {
    let annotation = |claim: &Value| {
        meta_field(claim, "annotations")
            .and_then(|all| all.get(BETA_CLASS))
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let (new_annotation, old_annotation) = (annotation(new), annotation(old));
    let class =
        |claim: &Value| claim.pointer("/spec/storageClassName").and_then(Value::as_str).map(str::to_owned);
    let (new_class, old_class) = (class(new), class(old));
    let (mut new_spec, mut old_spec) = (new["spec"].clone(), old["spec"].clone());

    // A volume is named once.
    if text(&old_spec, "/volumeName").is_empty() {
        object::copy_field(&new_spec, &mut old_spec, "volumeName");
    }
    // A class moves from the old annotation to the field.
    let moved = old_class.is_none()
        && old_annotation.is_some()
        && new_class == old_annotation
        && (new_annotation.is_none() || new_annotation == old_annotation);
    if moved {
        object::copy_field(&old_spec, &mut new_spec, "storageClassName");
    } else {
        if new_annotation.as_deref().unwrap_or("") != old_annotation.as_deref().unwrap_or("") {
            let value = new_annotation.unwrap_or_default();
            let field = format!("metadata.annotations.{BETA_CLASS}");
            errors.push(FieldError::invalid(field, value, "field is immutable"));
        }
        // A claim without a class gets one.
        let unset = old_class.is_none() && (old_annotation.is_none() || new_class == old_annotation);
        if new_class.is_some() && unset {
            object::copy_field(&old_spec, &mut new_spec, "storageClassName");
        }
    }
    // A bound claim may ask for another size and other attributes.
    if text(new, "/status/phase") == "Bound" {
        if let Some(requests) = new_spec.pointer_mut("/resources/requests").and_then(Value::as_object_mut) {
            object::set(requests, "storage", old_spec.pointer("/resources/requests/storage").cloned());
        }
        object::copy_field(&old_spec, &mut new_spec, "volumeAttributesClassName");
    }
    if new_spec != old_spec {
        let what = diff::diff(&old_spec, &new_spec);
        errors.push(FieldError::forbidden("spec", format!("{IMMUTABLE}\n{what}")));
    }
}

fn quantity(value: Option<&Value>) -> Option<Quantity> {
    Quantity::parse(value?.as_str()?).ok()
}

/// A request may shrink, but not to what the volume has or less.
fn sizes(errors: &mut Vec<FieldError>, new: &Value, old: &Value) {
    const REQUEST: &str = "/spec/resources/requests/storage";
    let zero = Quantity::parse("0").expect("zero is a quantity");
    let size =
        |claim: &Value, pointer: &str| quantity(claim.pointer(pointer)).unwrap_or_else(|| zero.clone());
    let (new_size, old_size) = (size(new, REQUEST), size(old, REQUEST));
    if new_size.compare(&old_size) == Ordering::Less
        && new_size.compare(&size(old, "/status/capacity/storage")) != Ordering::Greater
    {
        let why = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden("spec.resources.requests.storage", why));
    }
}

/// Attributes that were applied are not taken back.
fn attributes_class(errors: &mut Vec<FieldError>, new: &Value, old: &Value) {
    const CLASS: &str = "/spec/volumeAttributesClassName";
    let (wanted, before) = (new.pointer(CLASS), old.pointer(CLASS));
    if wanted == before || old.pointer("/status/currentVolumeAttributesClassName").is_none() {
        return;
    }
    let what = match wanted {
        None | Some(Value::Null) => "nil",
        Some(class) if class == "" => "empty string",
        Some(_) => return,
    };
    let why =
        format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil");
    errors.push(FieldError::forbidden("spec.volumeAttributesClassName", why));
}

/// `ValidatePersistentVolumeClaimStatusUpdate`.
pub(super) fn check_status_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = meta::check_update(new, old);
    if items(new, "/spec/accessModes").is_empty() && !items(old, "/spec/accessModes").is_empty() {
        errors.push(FieldError::required("Spec.accessModes", ""));
    }
    quantities(&mut errors, new, "capacity");
    for (key, state) in
        new.pointer("/status/allocatedResourceStatuses").and_then(Value::as_object).into_iter().flatten()
    {
        let field = "status.allocatedResourceStatuses";
        resource_key(&mut errors, key, field);
        if !state.as_str().is_some_and(|state| RESIZE_STATES.contains(&state)) {
            errors.push(FieldError::not_supported(field, key.as_str(), &RESIZE_STATES));
        }
    }
    for key in new
        .pointer("/status/allocatedResources")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(serde_json::Map::keys)
    {
        resource_key(&mut errors, key, "status.allocatedResources");
    }
    quantities(&mut errors, new, "allocatedResources");
    errors
}

fn quantities(errors: &mut Vec<FieldError>, claim: &Value, part: &str) {
    let all = claim.pointer(&format!("/status/{part}")).and_then(Value::as_object);
    for (key, value) in all.into_iter().flatten() {
        if let Some(value) = quantity(Some(value)).map(|quantity| quantity.value()).filter(|value| *value < 0)
        {
            let why = "must be a valid resource quantity";
            errors.push(FieldError::invalid(format!("status.{part}[{key}]"), value, why));
        }
    }
}

/// Of unprefixed resource names only `storage` is known.
fn resource_key(errors: &mut Vec<FieldError>, key: &str, field: &str) {
    let faults = names::qualified(key);
    let native = !key.contains('/') || key.contains("kubernetes.io/");
    if faults.is_empty() && native && key != "storage" {
        errors.push(FieldError::not_supported(field, key, &["storage"]));
    }
    errors.extend(each(field, key, faults));
}

/// `GetWarningsForPersistentVolumeClaim`.
pub(super) fn warnings(claim: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if meta_field(claim, "annotations").is_some_and(|all| !is_empty(all.get(BETA_CLASS))) {
        warnings.push(format!(
            "metadata.annotations[{BETA_CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
        ));
    }
    for part in ["requests", "limits"] {
        let pointer = format!("/spec/resources/{part}/storage");
        if quantity(claim.pointer(&pointer)).is_some_and(|quantity| !quantity.is_whole()) {
            let value = text(claim, &pointer);
            warnings.push(format!(
                "spec.resources.{part}[storage]: fractional byte value {value:?} is invalid, must be an integer"
            ));
        }
    }
    warnings
}
