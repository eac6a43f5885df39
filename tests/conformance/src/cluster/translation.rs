//! Translates between a recording and a real API server.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Refusal, SetError, Setup};
use crate::case::{Case, Objects};
use crate::compare::{self, Difference};
use crate::execution::NAMESPACE;

/// A driver name of recordings that validation refuses, and its replacement. No decision depends on it.
const DRIVER: [&str; 2] = ["vendor.example/disk", "disk.vendor.example"];
/// A missing field in a difference.
const ABSENT: &str = "null";
/// Replaces every time of deletion.
const DELETED: &str = "deleted";

/// What replaces what.
#[derive(Default)]
pub(crate) struct Translation {
    /// UIDs of the recording and of the server.
    uids: Vec<(String, String)>,
    /// Fields that the server sets where the recording has none: kind, path in the object, and value.
    defaults: BTreeSet<(String, String, String)>,
}

/// Why no server can hold the world of the case, if that is known beforehand.
pub(super) fn obstacle(case: &Case) -> Option<Refusal> {
    if case.changed_before_operation.is_some() {
        return Some("other actors change the world in the middle of an operation".to_owned());
    }
    if case.pods.iter().any(|pod| pod["metadata"]["namespace"] != NAMESPACE) {
        return Some("a pod is in another namespace than that of all cases".to_owned());
    }
    let is_unset = |claim: &Value| matches!(claim["status"]["phase"].as_str(), None | Some(""));
    if case.initial.claims.iter().any(is_unset) {
        return Some("a claim's phase is unset, which the API server reads as Pending".to_owned());
    }
    let is_gone = |object: &Value| {
        let finalizers = object["metadata"]["finalizers"].as_array();
        object["metadata"]["deletionTimestamp"].is_string() && finalizers.is_none_or(Vec::is_empty)
    };
    if case.end.volumes.iter().chain(&case.end.claims).any(is_gone) {
        return Some("the recorded API server keeps what is deleted and has no finalizer left".to_owned());
    }
    let is_default = |class: &&Value| {
        let annotations = class["metadata"]["annotations"].as_object();
        annotations.is_some_and(|all| all.keys().any(|key| key.ends_with("/is-default-class")))
    };
    if case.classes.iter().filter(is_default).count() > 1 {
        return Some(
            "there are several default classes, and the API server tells how old each is".to_owned(),
        );
    }
    let incomplete =
        |class: &&Value| class["volumeBindingMode"].is_null() || class["reclaimPolicy"].is_null();
    let used = |class: &Value| {
        let claims = case.initial.claims.iter();
        claims.flat_map(class_names).any(|name| *name == class["metadata"]["name"])
            || class["metadata"]["annotations"].as_object().is_some_and(|all| !all.is_empty())
    };
    case.classes
        .iter()
        .filter(incomplete)
        .any(used)
        .then(|| "a StorageClass without the fields that the API server fills is used".to_owned())
}

fn class_names(claim: &Value) -> [&Value; 2] {
    let annotations = &claim["metadata"]["annotations"];
    [&claim["spec"]["storageClassName"], &annotations["volume.beta.kubernetes.io/storage-class"]]
}

/// The objects with the fields that validation requires.
pub(super) fn filled(objects: &Objects) -> Objects {
    let mut objects = objects.clone();
    for volume in &mut objects.volumes {
        replace(&mut volume["spec"], "gcePersistentDisk", "pdName", ["", Setup::DISK]);
        replace(&mut volume["spec"], "csi", "driver", DRIVER);
    }
    objects
}

fn replace(spec: &mut Value, source: &str, field: &str, [from, to]: [&str; 2]) {
    if spec[source][field] == from {
        spec[source][field] = to.into();
    }
}

/// A pod or class with the container or provisioner that validation requires.
pub(super) fn filled_environment(mut object: Value) -> Value {
    if object["kind"] == "Pod" && object["spec"]["containers"].is_null() {
        object["spec"]["containers"] = json!([{"name": "main", "image": "none"}]);
    }
    if object["kind"] == "StorageClass" && object["provisioner"] == "" {
        object["provisioner"] = "kubernetes.io/no-provisioner".into();
    }
    object
}

/// The objects as a server can hold them. It reads an unset phase as Pending.
pub(super) fn possible(objects: &Objects) -> Objects {
    let mut objects = objects.clone();
    for object in objects.volumes.iter_mut().chain(&mut objects.claims) {
        if matches!(object["status"]["phase"].as_str(), None | Some("")) {
            object["status"]["phase"] = "Pending".into();
        }
        if object["metadata"]["deletionTimestamp"].is_string() {
            object["metadata"]["deletionTimestamp"] = DELETED.into();
        }
    }
    objects
}

/// The fields of a status that are not empty.
pub(super) fn settable(status: &Value) -> Value {
    let mut status = status.clone();
    if let Some(status) = status.as_object_mut() {
        status.retain(|_, value| !matches!(value, Value::Null) && *value != "");
    }
    status
}

impl Translation {
    /// Learns the UID of an object that the server created.
    pub(super) fn met(&mut self, recorded: &Value, made: &Value) -> Result<(), SetError> {
        let uid = |object: &Value| object["metadata"]["uid"].as_str().map(ToOwned::to_owned);
        if let (Some(recorded), Some(made)) = (uid(recorded), uid(made)) {
            if self.uids.iter().any(|(known, _)| *known == recorded) {
                return Err(SetError::Refused("two objects have the same UID".to_owned()));
            }
            self.uids.push((recorded, made));
        }
        Ok(())
    }

    /// A recorded volume with the UIDs of the server.
    pub(super) fn forth(&self, mut volume: Value) -> Value {
        let given = |recorded: &str| self.uids.iter().find(|(known, _)| known == recorded);
        let recorded = volume["spec"]["claimRef"]["uid"].as_str();
        if let Some((_, made)) = recorded.and_then(given) {
            volume["spec"]["claimRef"]["uid"] = made.clone().into();
        }
        volume
    }

    /// The objects of the server with the UIDs of the recording, also in names, and without other
    /// replacements.
    pub(super) fn back(&self, objects: Objects) -> Objects {
        let back = |objects: Vec<Value>| {
            let texts = objects.into_iter().map(|object| self.back_text(object));
            texts.collect()
        };
        let Objects { volumes, claims } = objects;
        let mut objects = possible(&Objects { volumes: back(volumes), claims: back(claims) });
        for volume in &mut objects.volumes {
            replace(&mut volume["spec"], "gcePersistentDisk", "pdName", [Setup::DISK, ""]);
            replace(&mut volume["spec"], "csi", "driver", [DRIVER[1], DRIVER[0]]);
        }
        objects
    }

    /// A text with the UIDs of the recording.
    pub(super) fn back_name(&self, text: &str) -> String {
        self.uids.iter().fold(text.to_owned(), |text, (recorded, made)| text.replace(made, recorded))
    }

    fn back_text(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.back_name(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.back_text(item)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(key, value)| (key, self.back_text(value))).collect()
            }
            other => other,
        }
    }

    /// Learns the defaults: what the created world has and the recording does not.
    pub(super) fn learn(&mut self, differences: Vec<Difference>) -> Result<(), Refusal> {
        for difference in differences {
            let (kind, field) = place(&difference);
            if difference.expected != ABSENT {
                return Err(format!("the API server does not keep {field} of a {kind}"));
            }
            self.defaults.insert((kind, field, difference.found));
        }
        Ok(())
    }

    /// The objects without defaults that the recording does not expect.
    pub(super) fn without_defaults(&self, expected: &Objects, found: Objects) -> Objects {
        let mut found = found;
        for difference in compare::objects(expected, &found) {
            let (kind, field) = place(&difference);
            let name = difference.path.split([' ', '.']).nth(1).unwrap_or_default().to_owned();
            if difference.expected == ABSENT
                && self.defaults.contains(&(kind.clone(), field.clone(), difference.found))
            {
                let objects = if kind == "volume" { &mut found.volumes } else { &mut found.claims };
                let named = objects.iter_mut().filter(|object| object["metadata"]["name"] == *name);
                named.for_each(|object| remove(object, &field));
            }
        }
        found
    }
}

/// Kind and path in the object of a difference at `KIND NAME.PATH`.
fn place(difference: &Difference) -> (String, String) {
    let (kind, rest) = difference.path.split_once(' ').unwrap_or((&difference.path, ""));
    (kind.to_owned(), rest.split_once('.').map_or("", |(_, field)| field).to_owned())
}

fn remove(object: &mut Value, field: &str) {
    let (parent, last) = field.rsplit_once('.').unwrap_or(("", field));
    let mut parent = parent.split('.').filter(|part| !part.is_empty());
    let holder = parent.try_fold(object, |value, part| value.get_mut(part));
    if let Some(Value::Object(fields)) = holder {
        fields.remove(last);
    }
}
