//! The other kinds, checked so far that a typing error is noticed.

use serde_json::Value;

use super::{diff, in_range, names, required, required_name};
use crate::field::FieldErrors;
use crate::object::{self, items, text};
use crate::registry::Resource;

pub(super) fn pod(errors: &mut FieldErrors, pod: &Value) {
    let mut volumes: Vec<&str> = Vec::new();
    for (index, volume) in items(pod, "/spec/volumes").iter().enumerate() {
        let field = format!("spec.volumes[{index}]");
        let name = text(volume, "/name");
        if !name.is_empty() && volumes.contains(&name) {
            errors.duplicate(format!("{field}.name"), name);
        } else {
            required_name(errors, volume, &field, "name", names::label);
        }
        volumes.push(name);
        if let Some(source) = volume.get("persistentVolumeClaim") {
            required(errors, source, &format!("{field}.persistentVolumeClaim"), &["claimName"]);
        }
    }
    let containers = items(pod, "/spec/containers");
    if containers.is_empty() {
        errors.required("spec.containers", "");
    }
    let mut earlier: Vec<&str> = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let field = format!("spec.containers[{index}]");
        let name = text(container, "/name");
        required_name(errors, container, &field, "name", names::label);
        if earlier.contains(&name) {
            errors.duplicate(format!("{field}.name"), name);
        }
        earlier.push(name);
        required(errors, container, &field, &["image"]);
        for (index, mount) in items(container, "/volumeMounts").iter().enumerate() {
            let field = format!("{field}.volumeMounts[{index}]");
            let name = text(mount, "/name");
            if !volumes.contains(&name) {
                errors.not_found(format!("{field}.name"), name);
            }
            required(errors, mount, &field, &["mountPath"]);
        }
    }
    let policies = ["Always", "OnFailure", "Never"];
    errors.one_of("spec.restartPolicy", text(pod, "/spec/restartPolicy"), &policies);
}

pub(super) fn lease(errors: &mut FieldErrors, lease: &Value) {
    let spec = &lease["spec"];
    in_range(errors, spec, "spec", "leaseDurationSeconds", 1..=i64::MAX, "must be greater than 0");
    let why = "must be greater than or equal to 0";
    in_range(errors, spec, "spec", "leaseTransitions", 0..=i64::MAX, why);
}

pub(super) fn event(errors: &mut FieldErrors, event: &Value) {
    let reference = event.get("involvedObject").or_else(|| event.get("regarding"));
    let namespace = reference.map_or("", |reference| text(reference, "/namespace"));
    let own = object::namespace(event);
    // Events of cluster-scoped objects are in the default namespace.
    let fits = if namespace.is_empty() { matches!(own, "default" | "kube-system") } else { namespace == own };
    if !fits {
        errors.invalid("involvedObject.namespace", namespace, "does not match event.namespace");
    }
}

/// Refuses changes of immutable fields.
pub(super) fn check_update(errors: &mut FieldErrors, resource: &Resource, new: &Value, old: &Value) {
    let fields: &[&str] = match resource.kind {
        "StorageClass" => &["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"],
        "VolumeAttributesClass" => {
            for field in ["driverName", "parameters"] {
                if new.get(field) != old.get(field) {
                    errors.forbidden(field, format!("updates to {field} are forbidden."));
                }
            }
            return;
        }
        "VolumeAttachment" => &["spec"],
        "CSIStorageCapacity" => &["nodeTopology", "storageClassName"],
        "Pod" => return pod_update(errors, new, old),
        _ => &[],
    };
    for field in fields {
        errors.immutable(field, new.get(field), old.get(field));
    }
}

/// A pod's spec is immutable, except for images, tolerations and a few more fields.
fn pod_update(errors: &mut FieldErrors, new: &Value, old: &Value) {
    const WHY: &str = "pod updates may not change fields other than \
                       `spec.containers[*].image`,`spec.initContainers[*].image`,\
                       `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
                       tolerations),\
                       `spec.terminationGracePeriodSeconds` (allow it to be set \
                       to 1 if it was previously negative)";
    let gates = items(old, "/spec/schedulingGates");
    if let Some(gate) = items(new, "/spec/schedulingGates").iter().find(|gate| !gates.contains(gate)) {
        let name = text(gate, "/name");
        let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
        return errors.forbidden("spec.schedulingGates", why);
    }
    if fixed_part(new) != fixed_part(old) {
        errors.forbidden("spec", format!("{WHY}\n{}", diff::diff(&old["spec"], &new["spec"])));
    }
}

/// The spec of a pod without the fields that may change.
fn fixed_part(pod: &Value) -> Value {
    const FREE: [&str; 4] =
        ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"];
    let mut spec = pod["spec"].clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|field, _| !FREE.contains(&field.as_str()));
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container["image"] = Value::Null;
        }
    }
    spec
}
