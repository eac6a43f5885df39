//! The writers of the fields that only binders write, from `metadata.managedFields`.
//!
//! For each field the API server keeps the last writer that changed it: an update takes a field over, an
//! apply with the same value adds a writer. Objects in the store have no managedFields.

use bindery_store::{Author, Authors};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::fields::{Fields, nullable};
use crate::keys;

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
pub(super) struct Owned {
    #[prost(message, required, tag = "1")]
    metadata: Meta,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default, deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "17")]
    managed_fields: Vec<Entry>,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    #[prost(string, tag = "1")]
    manager: String,
    #[serde(default)]
    #[prost(message, optional, tag = "7")]
    fields_v1: Option<Fields>,
}

/// The fields of a volume or a claim that an entry owns.
#[derive(Deserialize)]
struct Object {
    #[serde(default, rename = "f:metadata")]
    metadata: Option<ObjectMeta>,
    #[serde(default, rename = "f:spec")]
    spec: Option<Spec>,
    #[serde(default, rename = "f:status")]
    status: Option<Status>,
}

#[derive(Deserialize)]
struct ObjectMeta {
    #[serde(default, rename = "f:annotations")]
    annotations: Option<Annotations>,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(default, rename = "f:pv.kubernetes.io/bind-completed")]
    bind_completed: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(default, rename = "f:claimRef")]
    claim_ref: Option<ClaimRef>,
}

#[derive(Deserialize)]
struct ClaimRef {
    #[serde(default, rename = "f:uid")]
    uid: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default, rename = "f:phase")]
    phase: Option<IgnoredAny>,
}

impl Object {
    fn has_phase(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.phase.is_some())
    }

    fn has_claim_ref(&self) -> bool {
        let claim_ref = self.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        claim_ref.is_some_and(|claim_ref| claim_ref.uid.is_some())
    }

    fn has_bind_completed(&self) -> bool {
        let annotations = self.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
        annotations.is_some_and(|annotations| annotations.bind_completed.is_some())
    }
}

pub(super) fn decode(object: Owned) -> Authors {
    let read = |entry: Entry| {
        let object: Object = serde_json::from_slice(&entry.fields_v1?.json).ok()?;
        Some((entry.manager, object))
    };
    let entries: Vec<_> = object.metadata.managed_fields.into_iter().filter_map(read).collect();
    Authors {
        phase: author(&entries, Object::has_phase),
        bind_completed: author(&entries, Object::has_bind_completed),
        claim_ref: author(&entries, Object::has_claim_ref),
    }
}

fn author(entries: &[(String, Object)], owns: impl Fn(&Object) -> bool) -> Author {
    let mut author = Author::Unknown;
    for (manager, _) in entries.iter().filter(|(_, object)| owns(object)) {
        if manager == keys::FIELD_MANAGER {
            return Author::Bindery;
        }
        author = Author::Other(manager.as_str().into());
    }
    author
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::authors;
    use super::*;

    fn object(entries: &[Value]) -> Value {
        json!({"metadata": {"name": "c", "managedFields": entries}})
    }

    #[test]
    fn the_last_writer_of_the_binders_fields_is_found() {
        let phase = |manager: &str| {
            json!({
                "manager": manager, "operation": "Update", "apiVersion": "v1", "subresource": "status",
                "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:status": {"f:capacity": {".": {}, "f:storage": {}}, "f:phase": {}}},
            })
        };
        let mark = |manager: &str| {
            json!({
                "manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:metadata": {"f:annotations": {".": {}, "f:pv.kubernetes.io/bind-completed": {}}},
                    "f:spec": {"f:volumeName": {}},
                },
            })
        };
        let user = json!({
            "manager": "kubectl-patch", "operation": "Update", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:phase": {}}}, "f:spec": {"f:volumeName": {}}},
        });
        let reference = |manager: &str| {
            json!({
                "manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:claimRef": {".": {}, "f:name": {}, "f:uid": {}}}},
            })
        };
        let by_name = json!({
            "manager": "kubectl-create", "operation": "Update", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:claimRef": {"f:name": {}}}},
        });
        let unknown = || Author::Unknown;
        let upstream = || Author::Other("kube-controller-manager".into());
        for (entries, expected) in [
            (vec![], [unknown(), unknown(), unknown()]),
            (vec![user.clone()], [unknown(), unknown(), unknown()]),
            (vec![user.clone(), phase("bindery")], [Author::Bindery, unknown(), unknown()]),
            (
                vec![mark("bindery"), phase("kube-controller-manager")],
                [upstream(), Author::Bindery, unknown()],
            ),
            (vec![mark("kube-controller-manager"), user], [unknown(), upstream(), unknown()]),
            (vec![by_name.clone(), reference("bindery")], [unknown(), unknown(), Author::Bindery]),
            (vec![by_name], [unknown(), unknown(), unknown()]),
            // An apply with the same value adds a writer.
            (vec![phase("gitops"), phase("bindery")], [Author::Bindery, unknown(), unknown()]),
        ] {
            let [phase, bind_completed, claim_ref] = expected;
            let object = object(&entries);
            assert_eq!(authors(&object), Authors { phase, bind_completed, claim_ref }, "{object}");
            assert_eq!(authors(object.to_string().as_bytes()), authors(&object));
        }
    }

    #[test]
    fn malformed_managed_fields_have_unknown_writers() {
        let unknown = Authors::default();
        for object in [json!({}), json!({"metadata": {"managedFields": "none"}}), object(&[json!({})])] {
            assert_eq!(authors(&object), unknown, "{object}");
        }
    }
}
