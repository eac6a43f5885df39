//! Events are stored once, as core/v1, and served as core/v1 and events.k8s.io/v1.

use serde_json::Value;

use crate::registry::{EVENT, Resource};
use crate::schema;

/// The fields of events.k8s.io/v1 with other names in core/v1.
const FIELDS: [(&str, &str); 7] = [
    ("reportingController", "reportingComponent"),
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

fn is_second_view(resource: &Resource) -> bool {
    resource.kind == EVENT && !resource.group.is_empty()
}

/// The stored form of an object.
pub(crate) fn to_stored(resource: &Resource, mut object: Value) -> Value {
    if is_second_view(resource) {
        for (view, stored) in FIELDS {
            rename(&mut object, view, stored);
        }
        object["apiVersion"] = "v1".into();
        object = schema::normalise(object);
    }
    object
}

/// A stored object in the form of the requested resource.
pub(crate) fn to_view(resource: &Resource, object: &Value) -> Value {
    let mut object = object.clone();
    if is_second_view(resource) {
        for (view, stored) in FIELDS {
            rename(&mut object, stored, view);
        }
        object["apiVersion"] = resource.api_version().into();
        object = schema::normalise(object);
    }
    object
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(fields) = object.as_object_mut()
        && let Some(value) = fields.remove(from)
    {
        fields.insert(to.to_owned(), value);
    }
}
