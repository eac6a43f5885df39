//! The kinds that matter less: enough that a typing error is noticed.

use serde_json::Value;

use super::meta::{self, Name};
use super::{each, immutable, names, required};
use crate::object::{self, items, text};
use crate::registry::Resource;
use crate::status::FieldError;

/// The checks of one object by itself.
pub(super) fn check(resource: &Resource, value: &Value) -> Vec<FieldError> {
    let rule = match resource.kind {
        "Namespace" => Name::Label,
        // Leases, events, pods, nodes and the rest.
        _ => Name::Subdomain,
    };
    let mut errors = meta::check(resource, value, rule);
    match resource.kind {
        "Pod" => pod(&mut errors, value),
        "Lease" => lease(&mut errors, value),
        "Event" => event(&mut errors, value),
        _ => {}
    }
    errors
}

fn pod(errors: &mut Vec<FieldError>, pod: &Value) {
    let mut volumes: Vec<&str> = Vec::new();
    for (index, volume) in items(pod, "/spec/volumes").iter().enumerate() {
        let name = text(volume, "/name");
        let field = format!("spec.volumes[{index}].name");
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if volumes.contains(&name) {
            errors.push(FieldError::duplicate(field, name));
        } else {
            errors.extend(each(&field, name, names::label(name)));
        }
        volumes.push(name);
        if volume.get("persistentVolumeClaim").is_some() {
            let field = format!("spec.volumes[{index}].persistentVolumeClaim.claimName");
            required(errors, volume, "/persistentVolumeClaim/claimName", &field);
        }
    }
    let containers = items(pod, "/spec/containers");
    if containers.is_empty() {
        errors.push(FieldError::required("spec.containers", ""));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let field = format!("spec.containers[{index}]");
        let name = text(container, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        } else {
            errors.extend(each(&format!("{field}.name"), name, names::label(name)));
        }
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(format!("{field}.name"), name));
        }
        seen.push(name);
        required(errors, container, "/image", &format!("{field}.image"));
        for (place, mount) in items(container, "/volumeMounts").iter().enumerate() {
            let field = format!("{field}.volumeMounts[{place}]");
            let name = text(mount, "/name");
            if !volumes.contains(&name) {
                errors.push(FieldError::not_found(format!("{field}.name"), name));
            }
            required(errors, mount, "/mountPath", &format!("{field}.mountPath"));
        }
    }
    let policy = text(pod, "/spec/restartPolicy");
    if !matches!(policy, "Always" | "OnFailure" | "Never") {
        errors.push(FieldError::not_supported(
            "spec.restartPolicy",
            policy,
            &["Always", "OnFailure", "Never"],
        ));
    }
}

fn lease(errors: &mut Vec<FieldError>, lease: &Value) {
    for field in ["leaseDurationSeconds", "leaseTransitions"] {
        let least = i64::from(field == "leaseDurationSeconds");
        if let Some(number) = lease["spec"][field].as_i64().filter(|number| *number < least) {
            let why =
                if least == 1 { "must be greater than 0" } else { "must be greater than or equal to 0" };
            errors.push(FieldError::invalid(format!("spec.{field}"), number, why));
        }
    }
}

fn event(errors: &mut Vec<FieldError>, event: &Value) {
    let reference = event.get("involvedObject").or_else(|| event.get("regarding"));
    let namespace = reference.map_or("", |reference| text(reference, "/namespace"));
    let own = object::namespace(event);
    // Objects without a namespace have their events in the default one.
    let fits = if namespace.is_empty() { matches!(own, "default" | "kube-system") } else { namespace == own };
    if !fits {
        let value = if namespace.is_empty() { "" } else { namespace };
        errors.push(FieldError::invalid("involvedObject.namespace", value, "does not match event.namespace"));
    }
}

/// What may not change.
pub(super) fn check_update(resource: &Resource, new: &Value, old: &Value) -> Vec<FieldError> {
    let fields: &[&str] = match resource.kind {
        "StorageClass" => &["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"],
        "VolumeAttributesClass" => {
            let changed =
                ["driverName", "parameters"].into_iter().filter(|field| new.get(field) != old.get(field));
            let refuse = |field| FieldError::forbidden(field, format!("updates to {field} are forbidden."));
            return changed.map(refuse).collect();
        }
        "VolumeAttachment" => &["spec"],
        "CSIStorageCapacity" => &["nodeTopology", "storageClassName"],
        "Pod" => return pod_update(new, old),
        _ => &[],
    };
    fields.iter().filter_map(|field| immutable(new.get(field), old.get(field), field)).collect()
}

/// Of a pod's spec only images, tolerations and few more may change. Scheduling gates may be removed.
fn pod_update(new: &Value, old: &Value) -> Vec<FieldError> {
    const WHY: &str = "pod updates may not change fields other than \
                       `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
                       `spec.tolerations` (only additions to existing tolerations),\
                       `spec.terminationGracePeriodSeconds` (allow it to be set \
                       to 1 if it was previously negative)";
    let gates = items(old, "/spec/schedulingGates");
    if let Some(gate) = items(new, "/spec/schedulingGates").iter().find(|gate| !gates.contains(gate)) {
        let why =
            format!("only deletion is allowed, but found new scheduling gate '{}'", text(gate, "/name"));
        return vec![FieldError::forbidden("spec.schedulingGates", why)];
    }
    let fixed = |pod: &Value| {
        const FREE: [&str; 4] =
            ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"];
        let mut spec = pod["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            for field in FREE {
                fields.remove(field);
            }
        }
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                container["image"] = Value::Null;
            }
        }
        spec
    };
    if fixed(new) == fixed(old) {
        return Vec::new();
    }
    vec![FieldError::forbidden("spec", format!("{WHY}\n{}", super::diff::diff(&old["spec"], &new["spec"])))]
}
