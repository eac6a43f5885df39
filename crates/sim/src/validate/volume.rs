//! Volumes (`ValidatePersistentVolume…` of `pkg/apis/core/validation`).

use serde_json::{Map, Value};

use super::{access_modes, diff, each, immutable, labels, meta, names, sources, volume_mode};
use crate::object::{items, meta_field, text};
use crate::quantity::Quantity;
use crate::registry::Resource;
use crate::status::FieldError;

const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// Sources whose plugins take mount options from the annotation.
const MOUNTABLE: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

/// Labels of nodes that have been replaced: the old key, since when, and the key of today.
const DEPRECATED_LABELS: [(&str, &str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "v1.17", "node.kubernetes.io/instance-type"),
];

/// `ValidatePersistentVolume` of the strategy: the common checks, then those of volume plugins.
pub(super) fn check(resource: &Resource, volume: &Value) -> Vec<FieldError> {
    let mut errors = check_common(resource, volume);
    mount_options(&mut errors, volume);
    errors
}

fn check_common(resource: &Resource, volume: &Value) -> Vec<FieldError> {
    let mut errors = meta::check(resource, volume, meta::Name::Subdomain);
    spec(&mut errors, &volume["spec"], text(volume, "/metadata/name"));
    errors
}

fn mount_options(errors: &mut Vec<FieldError>, volume: &Value) {
    let annotated = meta_field(volume, "annotations").is_some_and(|all| all.get(MOUNT_OPTIONS).is_some());
    if annotated && !MOUNTABLE.iter().any(|source| volume["spec"].get(source).is_some()) {
        errors.push(FieldError::forbidden(
            format!("metadata.annotations.{MOUNT_OPTIONS}"),
            "may not specify mount options for this volume type",
        ));
    }
}

fn spec(errors: &mut Vec<FieldError>, spec: &Value, name: &str) {
    if items(spec, "/accessModes").is_empty() {
        errors.push(FieldError::required("spec.accessModes", ""));
    }
    access_modes(errors, spec);
    capacity(errors, spec);
    let policy = text(spec, "/persistentVolumeReclaimPolicy");
    if !matches!(policy, "" | "Delete" | "Recycle" | "Retain") {
        let known = ["Delete", "Recycle", "Retain"];
        errors.push(FieldError::not_supported("spec.persistentVolumeReclaimPolicy", policy, &known));
    }
    let affinity = spec.get("nodeAffinity");
    if let Some(affinity) = affinity {
        match affinity.get("required") {
            Some(required) => labels::node_selector(errors, required, "spec.nodeAffinity.required"),
            None => errors.push(FieldError::required(
                "spec.nodeAffinity.required",
                "must specify required node constraints",
            )),
        }
    }
    sources::check(errors, spec, name, affinity.is_some());
    if policy == "Recycle" && is_root(text(spec, "/hostPath/path")) {
        errors.push(FieldError::forbidden(
            "spec.persistentVolumeReclaimPolicy",
            "may not be 'recycle' for a hostPath mount of '/'",
        ));
    }
    let class = text(spec, "/storageClassName");
    if !class.is_empty() {
        errors.extend(each("spec.storageClassName", class, names::subdomain(class)));
    }
    volume_mode(errors, spec);
    attributes_class(errors, spec);
}

fn attributes_class(errors: &mut Vec<FieldError>, spec: &Value) {
    const FIELD: &str = "spec.volumeAttributesClassName";
    let Some(class) = spec.get("volumeAttributesClassName").and_then(Value::as_str) else { return };
    if class.is_empty() {
        errors.push(FieldError::required(FIELD, "an empty string is disallowed"));
    } else {
        errors.extend(each(FIELD, class, names::subdomain(class)));
    }
    if spec.get("csi").is_none() {
        let why = "has to be specified when using volumeAttributesClassName";
        errors.push(FieldError::required("spec.csi", why));
    }
}

fn capacity(errors: &mut Vec<FieldError>, spec: &Value) {
    let empty = Map::new();
    let capacity = spec.get("capacity").and_then(Value::as_object).unwrap_or(&empty);
    if capacity.is_empty() {
        errors.push(FieldError::required("spec.capacity", ""));
    }
    if capacity.len() != 1 || !capacity.contains_key("storage") {
        let value = spec.get("capacity").cloned().unwrap_or(Value::Null);
        errors.push(FieldError::not_supported("spec.capacity", value, &["storage"]));
    }
    for (key, value) in capacity {
        let field = format!("spec.capacity[{key}]");
        let quantity = value.as_str().and_then(|text| Quantity::parse(text).ok());
        if let Some(value) = quantity.as_ref().map(Quantity::value).filter(|value| *value < 0) {
            errors.push(FieldError::invalid(&field, value, "must be a valid resource quantity"));
        }
        if quantity.is_none_or(|quantity| quantity.sign() <= 0) {
            errors.push(FieldError::invalid(&field, value.clone(), "must be greater than zero"));
        }
    }
}

/// Whether a path is "/" however it is written.
fn is_root(path: &str) -> bool {
    path.starts_with('/') && path.split('/').all(|part| matches!(part, "" | "."))
}

/// `ValidateUpdate` of the strategy, which checks the object by itself twice.
pub(super) fn check_update(resource: &Resource, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = check(resource, new);
    errors.extend(check_common(resource, new));
    let (mut new_source, old_source) = (source_of(new), source_of(old));
    // A secret for expansion may still be added.
    if old.pointer("/spec/csi").is_some()
        && old.pointer("/spec/csi/controllerExpandSecretRef").is_none()
        && let Some(csi) = new_source.get_mut("csi").and_then(Value::as_object_mut)
    {
        csi.remove("controllerExpandSecretRef");
    }
    if new_source != old_source {
        let what = diff::diff(&Value::Object(old_source), &Value::Object(new_source));
        errors.push(FieldError::forbidden(
            "spec.persistentvolumesource",
            format!("spec.persistentvolumesource is immutable after creation\n{what}"),
        ));
    }
    errors.extend(immutable(new.pointer("/spec/volumeMode"), old.pointer("/spec/volumeMode"), "volumeMode"));
    if let Some(before) = old.pointer("/spec/nodeAffinity") {
        let after = new.pointer("/spec/nodeAffinity").cloned().unwrap_or(Value::Null);
        if with_current_labels(&after) != with_current_labels(before) {
            let why = "field is immutable, except for updating from beta label to GA";
            errors.push(FieldError::invalid("nodeAffinity", after, why));
        }
    }
    let class = |volume: &Value| volume.pointer("/spec/volumeAttributesClassName").is_some();
    if class(old) && !class(new) {
        let why = "update from non-nil value to nil is forbidden";
        errors.push(FieldError::forbidden("spec.volumeAttributesClassName", why));
    }
    errors
}

fn source_of(volume: &Value) -> Map<String, Value> {
    let spec = volume.get("spec").and_then(Value::as_object);
    let fields = spec.into_iter().flatten();
    fields
        .filter(|(name, _)| sources::NAMES.contains(&name.as_str()))
        .map(|(name, source)| (name.clone(), source.clone()))
        .collect()
}

/// A node affinity with deprecated label keys replaced by those of today.
fn with_current_labels(affinity: &Value) -> Value {
    let mut affinity = affinity.clone();
    let terms = affinity.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    for term in terms.into_iter().flatten() {
        for expression in term.get_mut("matchExpressions").and_then(Value::as_array_mut).into_iter().flatten()
        {
            let key = text(expression, "/key");
            if let Some((.., current)) = DEPRECATED_LABELS.iter().find(|(label, ..)| *label == key) {
                expression["key"] = (*current).into();
            }
        }
    }
    affinity
}

/// `GetWarningsForPersistentVolume`.
pub(super) fn warnings(volume: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let annotated = |name: &str| meta_field(volume, "annotations").is_some_and(|all| all.get(name).is_some());
    let class = "volume.beta.kubernetes.io/storage-class";
    if annotated(class) {
        warnings.push(format!(
            "metadata.annotations[{class}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
        ));
    }
    if annotated(MOUNT_OPTIONS) {
        warnings.push(format!(
            "metadata.annotations[{MOUNT_OPTIONS}]: deprecated since v1.31; use \"mountOptions\" attribute instead"
        ));
    }
    if text(volume, "/spec/persistentVolumeReclaimPolicy") == "Recycle" {
        warnings.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    for (place, term) in items(volume, "/spec/nodeAffinity/required/nodeSelectorTerms").iter().enumerate() {
        for (index, expression) in items(term, "/matchExpressions").iter().enumerate() {
            let key = text(expression, "/key");
            if let Some((_, since, current)) = DEPRECATED_LABELS.iter().find(|(label, ..)| *label == key) {
                warnings.push(format!(
                    "spec.nodeAffinity.required.nodeSelectorTerms[{place}].matchExpressions[{index}].key: {key} is \
                     deprecated since {since}; use {current:?} instead"
                ));
            }
        }
    }
    for (source, field, since) in [
        ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ] {
        if volume["spec"].get(source).is_some() {
            warnings.push(format!("spec.{field}: {since}"));
        }
    }
    warnings
}
