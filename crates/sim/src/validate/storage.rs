//! The kinds of storage.k8s.io (`pkg/apis/storage/validation`).

use serde_json::Value;

use super::sources::driver_name;
use super::{in_range, names, required};
use crate::field::FieldErrors;
use crate::object::{is_empty, items, text, texts};

/// The most parameters of a class, and the most bytes of all of them.
const PARAMETERS_MAX: usize = 512;
const PARAMETER_BYTES_MAX: usize = 256 * 1024;

/// `ValidateStorageClass`.
pub(super) fn class(errors: &mut FieldErrors, class: &Value) {
    let provisioner = text(class, "/provisioner").to_lowercase();
    if provisioner.is_empty() {
        errors.required("provisioner", "");
    } else {
        errors.check("provisioner", &provisioner, names::qualified);
    }
    parameters(errors, class);
    let policy = text(class, "/reclaimPolicy");
    if !policy.is_empty() {
        errors.one_of("reclaimPolicy", policy, &["Delete", "Retain"]);
    }
    let mode = text(class, "/volumeBindingMode");
    errors.one_of("volumeBindingMode", mode, &["Immediate", "WaitForFirstConsumer"]);
    for (index, term) in items(class, "/allowedTopologies").iter().enumerate() {
        for (place, expression) in items(term, "/matchLabelExpressions").iter().enumerate() {
            let field = format!("allowedTopologies[{index}].matchLabelExpressions[{place}]");
            if items(expression, "/values").is_empty() {
                errors.required(format!("{field}.values"), "");
            }
            errors.check(format!("{field}.key"), text(expression, "/key"), names::qualified);
        }
    }
}

/// `ValidateVolumeAttributesClass`.
pub(super) fn attributes_class(errors: &mut FieldErrors, class: &Value) {
    driver_name(errors, text(class, "/driverName"), "driverName");
    if is_empty(class.get("parameters")) {
        errors.required("parameters", "must contain at least one key/value pair");
    }
    parameters(errors, class);
}

fn parameters(errors: &mut FieldErrors, class: &Value) {
    let Some(parameters) = class.get("parameters").and_then(Value::as_object) else { return };
    if parameters.len() > PARAMETERS_MAX {
        errors.too_long("parameters", PARAMETERS_MAX);
        return;
    }
    if parameters.contains_key("") {
        errors.invalid("parameters", "", "field can not be empty.");
    }
    let bytes = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    if parameters.iter().map(bytes).sum::<usize>() > PARAMETER_BYTES_MAX {
        errors.too_long("parameters", PARAMETER_BYTES_MAX);
    }
}

/// `ValidateVolumeAttachment`.
pub(super) fn attachment(errors: &mut FieldErrors, attachment: &Value) {
    driver_name(errors, text(attachment, "/spec/attacher"), "spec.attacher");
    let source = &attachment["spec"]["source"];
    let (inline, volume) = (source.get("inlineVolumeSpec"), source.get("persistentVolumeName"));
    let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (inline, volume) {
        (None, None) => errors.required("spec.source", why),
        (Some(_), Some(_)) => errors.forbidden("spec.source", why),
        (None, Some(volume)) if is_empty(Some(volume)) => {
            let why = "must specify non empty persistentVolumeName";
            errors.required("spec.source.persistentVolumeName", why);
        }
        _ => {}
    }
    errors.check("spec.nodeName", text(attachment, "/spec/nodeName"), names::subdomain);
    if let Some(volume) = volume.and_then(Value::as_str) {
        errors.check("spec.source.persistentVolumeName", volume, names::subdomain);
    }
}

/// `ValidateCSIDriver`.
pub(super) fn driver(errors: &mut FieldErrors, driver: &Value) {
    let policy = text(driver, "/spec/fsGroupPolicy");
    if !policy.is_empty() {
        errors.one_of("spec.fsGroupPolicy", policy, &["File", "None", "ReadWriteOnceWithFSType"]);
    }
    for mode in texts(driver.pointer("/spec/volumeLifecycleModes")) {
        errors.one_of("spec.volumeLifecycleModes", mode, &["Persistent", "Ephemeral"]);
    }
}

/// `ValidateCSINode`.
pub(super) fn node(errors: &mut FieldErrors, node: &Value) {
    let mut earlier: Vec<&str> = Vec::new();
    for (index, driver) in items(node, "/spec/drivers").iter().enumerate() {
        let field = format!("spec.drivers[{index}]");
        let name = text(driver, "/name");
        driver_name(errors, name, &format!("{field}.name"));
        required(errors, driver, &field, &["nodeID"]);
        let (at, why) = (format!("{field}.allocatable"), "must be greater than or equal to 0");
        in_range(errors, &driver["allocatable"], &at, "count", 0..=i64::MAX, why);
        if earlier.contains(&name) {
            errors.duplicate(format!("{field}.name"), name);
        }
        earlier.push(name);
    }
}

/// `ValidateCSIStorageCapacity`.
pub(super) fn capacity(errors: &mut FieldErrors, capacity: &Value) {
    errors.check("storageClassName", text(capacity, "/storageClassName"), names::subdomain);
}
