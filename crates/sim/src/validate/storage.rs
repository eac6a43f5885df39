//! The kinds of storage.k8s.io (`pkg/apis/storage/validation`).

use serde_json::Value;

use super::meta::{self, Name};
use super::sources::driver_name;
use super::{each, names, required};
use crate::object::{is_empty, items, text};
use crate::registry::Resource;
use crate::status::FieldError;

/// The most parameters, and the most bytes of parameters, that a class may have.
const PARAMETERS_MAX: usize = 512;
const PARAMETER_BYTES_MAX: usize = 256 * 1024;

/// `ValidateStorageClass`.
pub(super) fn class(resource: &Resource, class: &Value) -> Vec<FieldError> {
    let mut errors = meta::check(resource, class, Name::Subdomain);
    let provisioner = text(class, "/provisioner");
    if provisioner.is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    } else {
        let faults = names::qualified(&provisioner.to_lowercase());
        errors.extend(each("provisioner", &provisioner.to_lowercase(), faults));
    }
    parameters(&mut errors, class, true);
    let policy = text(class, "/reclaimPolicy");
    if !matches!(policy, "" | "Delete" | "Retain") {
        errors.push(FieldError::not_supported("reclaimPolicy", policy, &["Delete", "Retain"]));
    }
    let mode = text(class, "/volumeBindingMode");
    if !matches!(mode, "Immediate" | "WaitForFirstConsumer") {
        let known = ["Immediate", "WaitForFirstConsumer"];
        errors.push(FieldError::not_supported("volumeBindingMode", mode, &known));
    }
    for (index, term) in items(class, "/allowedTopologies").iter().enumerate() {
        for (place, expression) in items(term, "/matchLabelExpressions").iter().enumerate() {
            let field = format!("allowedTopologies[{index}].matchLabelExpressions[{place}]");
            if items(expression, "/values").is_empty() {
                errors.push(FieldError::required(format!("{field}.values"), ""));
            }
            let key = text(expression, "/key");
            errors.extend(each(&format!("{field}.key"), key, names::qualified(key)));
        }
    }
    errors
}

/// `ValidateVolumeAttributesClass`.
pub(super) fn attributes_class(resource: &Resource, class: &Value) -> Vec<FieldError> {
    let mut errors = meta::check(resource, class, Name::Subdomain);
    let driver = text(class, "/driverName");
    driver_name(&mut errors, driver, "driverName");
    parameters(&mut errors, class, false);
    errors
}

fn parameters(errors: &mut Vec<FieldError>, class: &Value, may_be_empty: bool) {
    let Some(parameters) = class.get("parameters").and_then(Value::as_object).filter(|all| !all.is_empty())
    else {
        if !may_be_empty {
            errors.push(FieldError::required("parameters", "must contain at least one key/value pair"));
        }
        return;
    };
    if parameters.len() > PARAMETERS_MAX {
        errors.push(FieldError::too_long("parameters", PARAMETERS_MAX));
        return;
    }
    if parameters.contains_key("") {
        errors.push(FieldError::invalid("parameters", "", "field can not be empty."));
    }
    let bytes: usize =
        parameters.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > PARAMETER_BYTES_MAX {
        errors.push(FieldError::too_long("parameters", PARAMETER_BYTES_MAX));
    }
}

/// `ValidateVolumeAttachment`.
pub(super) fn attachment(resource: &Resource, attachment: &Value) -> Vec<FieldError> {
    let mut errors = meta::check(resource, attachment, Name::Subdomain);
    driver_name(&mut errors, text(attachment, "/spec/attacher"), "spec.attacher");
    let source = &attachment["spec"]["source"];
    let (inline, volume) = (source.get("inlineVolumeSpec"), source.get("persistentVolumeName"));
    let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (inline, volume) {
        (None, None) => errors.push(FieldError::required("spec.source", why)),
        (Some(_), Some(_)) => errors.push(FieldError::forbidden("spec.source", why)),
        (None, Some(volume)) if is_empty(Some(volume)) => errors.push(FieldError::required(
            "spec.source.persistentVolumeName",
            "must specify non empty persistentVolumeName",
        )),
        _ => {}
    }
    let node = text(attachment, "/spec/nodeName");
    errors.extend(each("spec.nodeName", node, names::subdomain(node)));
    if let Some(volume) = volume.and_then(Value::as_str) {
        errors.extend(each("spec.source.persistentVolumeName", volume, names::subdomain(volume)));
    }
    errors
}

/// `ValidateCSIDriver`.
pub(super) fn driver(resource: &Resource, driver: &Value) -> Vec<FieldError> {
    let mut errors = meta::check(resource, driver, Name::Subdomain);
    let policy = text(driver, "/spec/fsGroupPolicy");
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    if !policy.is_empty() && !policies.contains(&policy) {
        errors.push(FieldError::not_supported("spec.fsGroupPolicy", policy, &policies));
    }
    for mode in items(driver, "/spec/volumeLifecycleModes") {
        if !matches!(mode.as_str(), Some("Persistent" | "Ephemeral")) {
            let known = ["Persistent", "Ephemeral"];
            errors.push(FieldError::not_supported("spec.volumeLifecycleModes", mode.clone(), &known));
        }
    }
    errors
}

/// `ValidateCSINode`.
pub(super) fn node(resource: &Resource, node: &Value) -> Vec<FieldError> {
    let mut errors = meta::check(resource, node, Name::Subdomain);
    let mut seen: Vec<&str> = Vec::new();
    for (index, driver) in items(node, "/spec/drivers").iter().enumerate() {
        let field = format!("spec.drivers[{index}]");
        let name = text(driver, "/name");
        driver_name(&mut errors, name, &format!("{field}.name"));
        required(&mut errors, driver, "/nodeID", &format!("{field}.nodeID"));
        if let Some(count) =
            driver.pointer("/allocatable/count").and_then(Value::as_i64).filter(|count| *count < 0)
        {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("{field}.allocatable.count"), count, why));
        }
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(format!("{field}.name"), name));
        }
        seen.push(name);
    }
    errors
}

/// `ValidateCSIStorageCapacity`.
pub(super) fn capacity(resource: &Resource, capacity: &Value) -> Vec<FieldError> {
    let mut errors = meta::check(resource, capacity, Name::Subdomain);
    let class = text(capacity, "/storageClassName");
    errors.extend(each("storageClassName", class, names::subdomain(class)));
    errors
}
