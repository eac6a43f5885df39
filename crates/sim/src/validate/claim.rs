//! Claims (`ValidatePersistentVolumeClaim…` of `pkg/apis/core/validation`).

use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use super::{access_modes, diff, labels, names, optional_name, required, volume_mode};
use crate::field::FieldErrors;
use crate::object::{self, CLASS_ANNOTATION, annotation, items, text};
use crate::quantity::Quantity;

const IMMUTABLE: &str = "spec is immutable after creation except resources.requests and \
                         volumeAttributesClassName for bound claims";

/// The states of a resize in `status.allocatedResourceStatuses`.
const RESIZE_STATES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// `ValidatePersistentVolumeClaim`.
pub(super) fn check(errors: &mut FieldErrors, claim: &Value) {
    let spec = &claim["spec"];
    if items(spec, "/accessModes").is_empty() {
        errors.required("spec.accessModes", "at least 1 access mode is required");
    }
    if let Some(selector) = spec.get("selector") {
        labels::label_selector(errors, selector, "spec.selector");
    }
    access_modes(errors, spec);
    match spec.pointer("/resources/requests/storage").and_then(Value::as_str) {
        None => errors.required("spec.resources[storage]", ""),
        Some(text) if Quantity::parse(text).is_ok_and(|quantity| quantity.sign() <= 0) => {
            errors.invalid("spec.resources[storage]", text, "must be greater than zero");
        }
        Some(_) => {}
    }
    optional_name(errors, spec, "spec", "storageClassName", names::subdomain);
    volume_mode(errors, spec);
    data_sources(errors, spec);
    optional_name(errors, spec, "spec", "volumeAttributesClassName", names::subdomain);
}

fn data_sources(errors: &mut FieldErrors, spec: &Value) {
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    if let Some(source) = source {
        data_source(errors, source, "spec.dataSource");
    }
    let Some(reference) = reference else { return };
    data_source(errors, reference, "spec.dataSourceRef");
    optional_name(errors, reference, "spec.dataSourceRef", "namespace", names::label);
    let Some(source) = source else { return };
    let same = |field: &&str| source.get(field) == reference.get(field);
    if !text(reference, "/namespace").is_empty() {
        let why = "may not be specified when dataSourceRef.namespace is specified";
        errors.invalid("spec", json!({}), why);
    } else if !["apiGroup", "kind", "name"].iter().all(same) {
        errors.invalid("spec", json!({}), "must match dataSourceRef");
    }
}

fn data_source(errors: &mut FieldErrors, source: &Value, field: &str) {
    required(errors, source, field, &["name", "kind"]);
    let (group, kind) = (text(source, "/apiGroup"), text(source, "/kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.invalid(field, kind, why);
    }
    optional_name(errors, source, field, "apiGroup", names::subdomain);
}

/// What `ValidatePersistentVolumeClaimUpdate` checks beyond metadata and the new claim by itself.
pub(super) fn check_update(errors: &mut FieldErrors, new: &Value, old: &Value) {
    spec_change(errors, new, old);
    size_change(errors, new, old);
    errors.immutable("volumeMode", new.pointer("/spec/volumeMode"), old.pointer("/spec/volumeMode"));
    attributes_class_change(errors, new, old);
}

/// Refuses a change of the spec, except for the changes that the comments name.
fn spec_change(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let class = |claim| Value::pointer(claim, "/spec/storageClassName").and_then(Value::as_str);
    let (new_annotation, old_annotation) =
        (annotation(new, CLASS_ANNOTATION), annotation(old, CLASS_ANNOTATION));
    let (new_class, old_class) = (class(new), class(old));
    let (mut new_spec, mut old_spec) = (new["spec"].clone(), old["spec"].clone());

    // A volume is named once.
    if text(&old_spec, "/volumeName").is_empty() {
        object::copy_field(&new_spec, &mut old_spec, "volumeName");
    }
    // The class moves from the old annotation to the field.
    let moved = old_class.is_none()
        && old_annotation.is_some()
        && new_class == old_annotation
        && (new_annotation.is_none() || new_annotation == old_annotation);
    // A claim without a class gets one.
    let set = new_class.is_some()
        && old_class.is_none()
        && (old_annotation.is_none() || new_class == old_annotation);
    if moved || set {
        object::copy_field(&old_spec, &mut new_spec, "storageClassName");
    }
    if !moved && new_annotation.unwrap_or("") != old_annotation.unwrap_or("") {
        let field = format!("metadata.annotations.{CLASS_ANNOTATION}");
        errors.invalid(field, new_annotation.unwrap_or(""), "field is immutable");
    }
    // A bound claim may request another size and other attributes.
    if text(new, "/status/phase") == "Bound" {
        if let Some(requests) = new_spec.pointer_mut("/resources/requests").and_then(Value::as_object_mut) {
            object::set(requests, "storage", old_spec.pointer("/resources/requests/storage").cloned());
        }
        object::copy_field(&old_spec, &mut new_spec, "volumeAttributesClassName");
    }
    if new_spec != old_spec {
        errors.forbidden("spec", format!("{IMMUTABLE}\n{}", diff::diff(&old_spec, &new_spec)));
    }
}

fn quantity(value: &Value, pointer: &str) -> Option<Quantity> {
    Quantity::parse(value.pointer(pointer)?.as_str()?).ok()
}

/// A request may shrink, but must stay above the volume's capacity.
fn size_change(errors: &mut FieldErrors, new: &Value, old: &Value) {
    const REQUEST: &str = "/spec/resources/requests/storage";
    let size = |claim: &Value, pointer: &str| quantity(claim, pointer).unwrap_or_else(Quantity::zero);
    let new_size = size(new, REQUEST);
    if new_size.compare(&size(old, REQUEST)) == Ordering::Less
        && new_size.compare(&size(old, "/status/capacity/storage")) != Ordering::Greater
    {
        let why = "field can not be less than status.capacity";
        errors.forbidden("spec.resources.requests.storage", why);
    }
}

/// Applied attributes cannot be removed.
fn attributes_class_change(errors: &mut FieldErrors, new: &Value, old: &Value) {
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
    errors.forbidden("spec.volumeAttributesClassName", why);
}

/// What `ValidatePersistentVolumeClaimStatusUpdate` checks beyond metadata.
pub(super) fn check_status(errors: &mut FieldErrors, new: &Value, old: &Value) {
    if items(new, "/spec/accessModes").is_empty() && !items(old, "/spec/accessModes").is_empty() {
        errors.required("Spec.accessModes", "");
    }
    let empty = Map::new();
    let status = |field: &str| new["status"].get(field).and_then(Value::as_object).unwrap_or(&empty);
    not_negative(errors, "capacity", status("capacity"));
    for (key, state) in status("allocatedResourceStatuses") {
        let field = "status.allocatedResourceStatuses";
        resource_key(errors, key, field);
        if !state.as_str().is_some_and(|state| RESIZE_STATES.contains(&state)) {
            errors.not_supported(field, key.as_str(), &RESIZE_STATES);
        }
    }
    for key in status("allocatedResources").keys() {
        resource_key(errors, key, "status.allocatedResources");
    }
    not_negative(errors, "allocatedResources", status("allocatedResources"));
}

fn not_negative(errors: &mut FieldErrors, field: &str, quantities: &Map<String, Value>) {
    for (key, value) in quantities {
        if let Some(value) = quantity(value, "").map(|quantity| quantity.value()).filter(|value| *value < 0) {
            errors.invalid(format!("status.{field}[{key}]"), value, "must be a valid resource quantity");
        }
    }
}

/// Without a prefix, `storage` is the only known resource name.
fn resource_key(errors: &mut FieldErrors, key: &str, field: &str) {
    let native = !key.contains('/') || key.contains("kubernetes.io/");
    if native && key != "storage" && names::qualified(key).is_empty() {
        errors.not_supported(field, key, &["storage"]);
    }
    errors.check(field, key, names::qualified);
}

/// `GetWarningsForPersistentVolumeClaim`.
pub(super) fn warnings(claim: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if annotation(claim, CLASS_ANNOTATION).is_some_and(|class| !class.is_empty()) {
        warnings.push(super::volume::class_annotation_warning());
    }
    for part in ["requests", "limits"] {
        let pointer = format!("/spec/resources/{part}/storage");
        if quantity(claim, &pointer).is_some_and(|quantity| !quantity.is_whole()) {
            let value = text(claim, &pointer);
            warnings.push(format!(
                "spec.resources.{part}[storage]: fractional byte value {value:?} is invalid, must be an \
                 integer"
            ));
        }
    }
    warnings
}
