//! Metadata (`apimachinery/pkg/api/validation`).

use serde_json::Value;

use super::{labels, names, required_name};
use crate::field::FieldErrors;
use crate::object::{
    finalizers, is_deleting, is_empty, items, meta_field, meta_text, resource_version, text,
};
use crate::registry::Resource;

/// The most bytes of all annotations of an object.
const ANNOTATION_BYTES_MAX: usize = 256 * 1024;

/// Finalizers that need no prefix.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// The form of a name.
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
    fn rule(self) -> fn(&str) -> Vec<String> {
        match self {
            Name::Subdomain => names::subdomain,
            Name::Label => names::label,
            Name::PathSegment => names::path_segment,
        }
    }
}

/// `ValidateObjectMeta`.
pub(super) fn check(errors: &mut FieldErrors, resource: &Resource, value: &Value, form: Name) {
    let base = meta_text(value, "generateName");
    if !base.is_empty() {
        // A generated name follows a dash at the end.
        let masked = match base.strip_suffix('-') {
            Some(rest) if !rest.is_empty() && form != Name::PathSegment => {
                format!("{}a", &rest[..rest.len() - 1])
            }
            _ => base.to_owned(),
        };
        for fault in form.rule()(&masked) {
            errors.invalid("metadata.generateName", base, fault);
        }
    }
    let name = meta_text(value, "name");
    if name.is_empty() {
        errors.required("metadata.name", "name or generateName is required");
    } else {
        errors.check("metadata.name", name, form.rule());
    }
    if resource.namespaced {
        required_name(errors, &value["metadata"], "metadata", "namespace", names::label);
    }
    common(errors, value);
    for finalizer in finalizers(value) {
        errors.check("metadata.finalizers", finalizer, names::qualified);
    }
    if form != Name::PathSegment {
        for (index, finalizer) in finalizers(value).into_iter().enumerate() {
            if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
                let why = "name is neither a standard finalizer name nor is it fully qualified";
                errors.invalid(format!("metadata.finalizers[{index}]"), finalizer, why);
            }
        }
    }
}

/// The checks that creations and updates share.
fn common(errors: &mut FieldErrors, value: &Value) {
    labels::labels(errors, meta_field(value, "labels"), "metadata.labels");
    annotations(errors, value);
    owners(errors, value);
}

fn annotations(errors: &mut FieldErrors, value: &Value) {
    let mut bytes = 0;
    for (key, text) in meta_field(value, "annotations").and_then(Value::as_object).into_iter().flatten() {
        errors.check("metadata.annotations", key, |key| names::qualified(&key.to_lowercase()));
        bytes += key.len() + text.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATION_BYTES_MAX {
        errors.too_long("metadata.annotations", ANNOTATION_BYTES_MAX);
    }
}

fn owners(errors: &mut FieldErrors, value: &Value) {
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
                errors.invalid(format!("{FIELD}.{part}"), "", why);
            }
        }
        if text(owner, "/kind") == "Event" && text(owner, "/apiVersion") == "v1" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.invalid(FIELD, owner.clone(), why);
        }
        if owner["controller"] == true {
            let this = format!("{}/{}", text(owner, "/kind"), text(owner, "/name"));
            if let Some(first) = &controller {
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for \
                     {first} and {this}"
                );
                let all = meta_field(value, "ownerReferences").cloned().unwrap_or(Value::Null);
                errors.invalid(FIELD, all, why);
            } else {
                controller = Some(this);
            }
        }
    }
}

/// `ValidateObjectMetaUpdate`.
pub(super) fn check_update(errors: &mut FieldErrors, new: &Value, old: &Value) {
    if is_deleting(old) {
        let had = finalizers(old);
        let mut added: Vec<&str> = finalizers(new).into_iter().filter(|name| !had.contains(name)).collect();
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let quoted: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers \
                 []string{{{}}}",
                quoted.join(", ")
            );
            errors.forbidden("metadata.finalizers", why);
        }
    }
    if resource_version(new).is_empty() {
        errors.invalid("metadata.resourceVersion", "", "must be specified for an update");
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let (new, old) = (meta_field(new, field), meta_field(old, field));
        if !(is_empty(new) && is_empty(old)) {
            errors.immutable(&format!("metadata.{field}"), new, old);
        }
    }
    common(errors, new);
}
