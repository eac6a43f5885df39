//! Volumes (`ValidatePersistentVolume…` of `pkg/apis/core/validation`).

use serde_json::{Map, Value};

use super::sources::SOURCES;
use super::{access_modes, diff, labels, meta, names, optional_name, sources, volume_mode};
use crate::field::FieldErrors;
use crate::object::{CLASS_ANNOTATION, annotation, items, text};
use crate::quantity::Quantity;
use crate::registry::Resource;

const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// Deprecated node labels: the old key, the version that deprecated it, and the current key.
const DEPRECATED_LABELS: [(&str, &str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "v1.17", "node.kubernetes.io/instance-type"),
];

/// `ValidatePersistentVolume`, then the checks of the volume plugins.
pub(super) fn check(errors: &mut FieldErrors, volume: &Value) {
    spec(errors, volume);
    let sources = SOURCES.iter().filter(|source| volume["spec"].get(source.name).is_some());
    let mountable = sources.filter(|source| source.mountable).count() > 0;
    if annotation(volume, MOUNT_OPTIONS).is_some() && !mountable {
        let field = format!("metadata.annotations.{MOUNT_OPTIONS}");
        errors.forbidden(field, "may not specify mount options for this volume type");
    }
}

fn spec(errors: &mut FieldErrors, volume: &Value) {
    let spec = &volume["spec"];
    if items(spec, "/accessModes").is_empty() {
        errors.required("spec.accessModes", "");
    }
    access_modes(errors, spec);
    capacity(errors, spec);
    let policy = text(spec, "/persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        let known = ["Delete", "Recycle", "Retain"];
        errors.one_of("spec.persistentVolumeReclaimPolicy", policy, &known);
    }
    let affinity = spec.get("nodeAffinity");
    if let Some(affinity) = affinity {
        let field = "spec.nodeAffinity.required";
        match affinity.get("required") {
            Some(required) => labels::node_selector(errors, required, field),
            None => errors.required(field, "must specify required node constraints"),
        }
    }
    sources::check(errors, spec, text(volume, "/metadata/name"), affinity.is_some());
    if policy == "Recycle" && is_root(text(spec, "/hostPath/path")) {
        let why = "may not be 'recycle' for a hostPath mount of '/'";
        errors.forbidden("spec.persistentVolumeReclaimPolicy", why);
    }
    optional_name(errors, spec, "spec", "storageClassName", names::subdomain);
    volume_mode(errors, spec);
    attributes_class(errors, spec);
}

fn attributes_class(errors: &mut FieldErrors, spec: &Value) {
    let Some(class) = spec.get("volumeAttributesClassName").and_then(Value::as_str) else { return };
    if class.is_empty() {
        errors.required("spec.volumeAttributesClassName", "an empty string is disallowed");
    }
    optional_name(errors, spec, "spec", "volumeAttributesClassName", names::subdomain);
    if spec.get("csi").is_none() {
        errors.required("spec.csi", "has to be specified when using volumeAttributesClassName");
    }
}

fn capacity(errors: &mut FieldErrors, spec: &Value) {
    let empty = Map::new();
    let capacity = spec.get("capacity").and_then(Value::as_object).unwrap_or(&empty);
    if capacity.is_empty() {
        errors.required("spec.capacity", "");
    }
    if capacity.len() != 1 || !capacity.contains_key("storage") {
        let value = spec.get("capacity").cloned().unwrap_or(Value::Null);
        errors.not_supported("spec.capacity", value, &["storage"]);
    }
    for (key, value) in capacity {
        let field = format!("spec.capacity[{key}]");
        let quantity = value.as_str().and_then(|text| Quantity::parse(text).ok());
        if let Some(value) = quantity.as_ref().map(Quantity::value).filter(|value| *value < 0) {
            errors.invalid(&field, value, "must be a valid resource quantity");
        }
        if quantity.is_none_or(|quantity| quantity.sign() <= 0) {
            errors.invalid(&field, value.clone(), "must be greater than zero");
        }
    }
}

/// Whether a path means "/", as `//./` does.
fn is_root(path: &str) -> bool {
    path.starts_with('/') && path.split('/').all(|part| matches!(part, "" | "."))
}

/// What `ValidateUpdate` checks beyond the new volume by itself, which it checks once more.
pub(super) fn check_update(errors: &mut FieldErrors, resource: &Resource, new: &Value, old: &Value) {
    meta::check(errors, resource, new, meta::Name::Subdomain);
    spec(errors, new);
    let (mut new_source, old_source) = (source_of(new), source_of(old));
    // A secret for expansion may be added later.
    if old.pointer("/spec/csi").is_some()
        && old.pointer("/spec/csi/controllerExpandSecretRef").is_none()
        && let Some(csi) = new_source.get_mut("csi").and_then(Value::as_object_mut)
    {
        csi.remove("controllerExpandSecretRef");
    }
    if new_source != old_source {
        let what = diff::diff(&Value::Object(old_source), &Value::Object(new_source));
        let why = format!("spec.persistentvolumesource is immutable after creation\n{what}");
        errors.forbidden("spec.persistentvolumesource", why);
    }
    errors.immutable("volumeMode", new.pointer("/spec/volumeMode"), old.pointer("/spec/volumeMode"));
    if let Some(before) = old.pointer("/spec/nodeAffinity") {
        let after = new.pointer("/spec/nodeAffinity").cloned().unwrap_or(Value::Null);
        if with_current_labels(&after) != with_current_labels(before) {
            let why = "field is immutable, except for updating from beta label to GA";
            errors.invalid("nodeAffinity", after, why);
        }
    }
    let class = |volume: &Value| volume.pointer("/spec/volumeAttributesClassName").is_some();
    if class(old) && !class(new) {
        let why = "update from non-nil value to nil is forbidden";
        errors.forbidden("spec.volumeAttributesClassName", why);
    }
}

fn source_of(volume: &Value) -> Map<String, Value> {
    let spec = volume.get("spec").and_then(Value::as_object);
    let fields = spec.into_iter().flatten();
    fields
        .filter(|(name, _)| SOURCES.iter().any(|source| source.name == name.as_str()))
        .map(|(name, source)| (name.clone(), source.clone()))
        .collect()
}

/// A node affinity with deprecated label keys replaced by the current ones.
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

/// The warning for the annotation that named the class of a volume or claim before the field.
pub(super) fn class_annotation_warning() -> String {
    let why = "deprecated since v1.8; use \"storageClassName\" attribute instead";
    format!("metadata.annotations[{CLASS_ANNOTATION}]: {why}")
}

/// `GetWarningsForPersistentVolume`.
pub(super) fn warnings(volume: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if annotation(volume, CLASS_ANNOTATION).is_some() {
        warnings.push(class_annotation_warning());
    }
    if annotation(volume, MOUNT_OPTIONS).is_some() {
        let why = "deprecated since v1.31; use \"mountOptions\" attribute instead";
        warnings.push(format!("metadata.annotations[{MOUNT_OPTIONS}]: {why}"));
    }
    if text(volume, "/spec/persistentVolumeReclaimPolicy") == "Recycle" {
        let why = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use \
                   dynamic provisioning.";
        warnings.push(format!("spec.persistentVolumeReclaimPolicy: {why}"));
    }
    const TERMS: &str = "spec.nodeAffinity.required.nodeSelectorTerms";
    for (place, term) in items(volume, "/spec/nodeAffinity/required/nodeSelectorTerms").iter().enumerate() {
        for (index, expression) in items(term, "/matchExpressions").iter().enumerate() {
            let key = text(expression, "/key");
            if let Some((_, since, current)) = DEPRECATED_LABELS.iter().find(|(label, ..)| *label == key) {
                let why = format!("{key} is deprecated since {since}; use {current:?} instead");
                warnings.push(format!("{TERMS}[{place}].matchExpressions[{index}].key: {why}"));
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
