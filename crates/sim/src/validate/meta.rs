//! Metadata (`apimachinery/pkg/api/validation`).

use serde_json::Value;

use super::{each, immutable, labels, names};
use crate::object::{
    finalizers, is_deleting, is_empty, items, meta_field, meta_text, resource_version, text,
};
use crate::registry::Resource;
use crate::status::FieldError;

/// The most bytes that all annotations of an object may have.
const ANNOTATION_BYTES_MAX: usize = 256 * 1024;

/// Finalizers that need no prefix.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// What a name must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// A DNS subdomain.
    Subdomain,
    /// A DNS label.
    Label,
    /// Anything that fits between two slashes.
    PathSegment,
}

impl Name {
    fn faults(self, name: &str) -> Vec<String> {
        match self {
            Name::Subdomain => names::subdomain(name),
            Name::Label => names::label(name),
            Name::PathSegment => names::path_segment(name),
        }
    }
}

/// `ValidateObjectMeta`.
pub(super) fn check(resource: &Resource, value: &Value, rule: Name) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let base = meta_text(value, "generateName");
    if !base.is_empty() {
        // A dash at the end is followed by what is generated.
        let masked = match base.strip_suffix('-') {
            Some(rest) if !rest.is_empty() => format!("{}a", &rest[..rest.len() - 1]),
            _ => base.to_owned(),
        };
        let faults = if rule == Name::PathSegment { rule.faults(base) } else { rule.faults(&masked) };
        errors.extend(each("metadata.generateName", base, faults));
    }
    let name = meta_text(value, "name");
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        errors.extend(each("metadata.name", name, rule.faults(name)));
    }
    if resource.namespaced {
        let namespace = meta_text(value, "namespace");
        if namespace.is_empty() {
            errors.push(FieldError::required("metadata.namespace", ""));
        } else {
            errors.extend(each("metadata.namespace", namespace, names::label(namespace)));
        }
    }
    labels::labels(&mut errors, meta_field(value, "labels"), "metadata.labels");
    annotations(&mut errors, value);
    owners(&mut errors, value);
    for finalizer in finalizers(value) {
        errors.extend(each("metadata.finalizers", finalizer, names::qualified(finalizer)));
    }
    if rule != Name::PathSegment {
        for (index, finalizer) in finalizers(value).into_iter().enumerate() {
            if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
                let why = "name is neither a standard finalizer name nor is it fully qualified";
                errors.push(FieldError::invalid(format!("metadata.finalizers[{index}]"), finalizer, why));
            }
        }
    }
    errors
}

fn annotations(errors: &mut Vec<FieldError>, value: &Value) {
    let mut bytes = 0;
    for (key, text) in meta_field(value, "annotations").and_then(Value::as_object).into_iter().flatten() {
        errors.extend(each("metadata.annotations", key, names::qualified(&key.to_lowercase())));
        bytes += key.len() + text.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATION_BYTES_MAX {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATION_BYTES_MAX));
    }
}

fn owners(errors: &mut Vec<FieldError>, value: &Value) {
    const FIELD: &str = "metadata.ownerReferences";
    let mut controller: Option<String> = None;
    for owner in items(value, "/metadata/ownerReferences") {
        let faults = [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ];
        for (part, why) in faults {
            if text(owner, &format!("/{part}")).is_empty() {
                errors.push(FieldError::invalid(format!("{FIELD}.{part}"), "", why));
            }
        }
        if text(owner, "/kind") == "Event" && text(owner, "/apiVersion") == "v1" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(FIELD, owner.clone(), why));
        }
        if owner["controller"] == true {
            let this = format!("{}/{}", text(owner, "/kind"), text(owner, "/name"));
            if let Some(first) = &controller {
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and \
                     {this}"
                );
                let all = meta_field(value, "ownerReferences").cloned().unwrap_or(Value::Null);
                errors.push(FieldError::invalid(FIELD, all, why));
            } else {
                controller = Some(this);
            }
        }
    }
}

/// `ValidateObjectMetaUpdate`.
pub(super) fn check_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if is_deleting(old) {
        let had = finalizers(old);
        let mut added: Vec<&str> = finalizers(new).into_iter().filter(|name| !had.contains(name)).collect();
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let quoted: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                quoted.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", why));
        }
    }
    if resource_version(new).is_empty() {
        errors.push(FieldError::invalid("metadata.resourceVersion", "", "must be specified for an update"));
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let (new, old) = (meta_field(new, field), meta_field(old, field));
        if !(is_empty(new) && is_empty(old)) {
            errors.extend(immutable(new, old, &format!("metadata.{field}")));
        }
    }
    labels::labels(&mut errors, meta_field(new, "labels"), "metadata.labels");
    annotations(&mut errors, new);
    owners(&mut errors, new);
    errors
}
