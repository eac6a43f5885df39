//! The writers of the fields that only binders write, from `metadata.managedFields`.
//!
//! For each field the API server keeps the last writer that changed it: an update takes a field over, an
//! apply with the same value adds a writer. Objects in the store have no managedFields.

use bindery_store::{Author, Authors};
use serde::Deserialize;
use serde_json::Value;

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

pub(super) fn decode(object: Owned) -> Authors {
    let entries = entries(object);
    let bind_completed = format!("f:{}", keys::BIND_COMPLETED);
    Authors {
        phase: author(&entries, |owned| &owned["f:status"]["f:phase"]),
        bind_completed: author(&entries, |owned| &owned["f:metadata"]["f:annotations"][&bind_completed]),
        claim_ref: author(&entries, |owned| &owned["f:spec"]["f:claimRef"]["f:uid"]),
    }
}

/// Whether Bindery has written the claimRef of a volume, and no other program any field of it: upstream's
/// binder has carried out a reservation whose resourceVersion is its own, and a person who then removes the
/// UID reserves the volume anew.
pub(super) fn has_reserved(object: Owned) -> bool {
    let writes = |entry: &(String, Value)| !entry.1["f:spec"]["f:claimRef"].is_null();
    let mut owners = entries(object).into_iter().filter(writes).map(|(manager, _)| manager).peekable();
    owners.peek().is_some() && owners.all(|manager| manager == keys::FIELD_MANAGER)
}

/// The managers with the fields that each one owns.
fn entries(object: Owned) -> Vec<(String, Value)> {
    let read = |entry: Entry| {
        let owned: Value = serde_json::from_slice(&entry.fields_v1?.json).ok()?;
        Some((entry.manager, owned))
    };
    object.metadata.managed_fields.into_iter().filter_map(read).collect()
}

/// The last manager that owns a field, by the fields that each one owns.
fn author(entries: &[(String, Value)], field: impl Fn(&Value) -> &Value) -> Author {
    let mut author = Author::Unknown;
    for (manager, _) in entries.iter().filter(|(_, owned)| !field(owned).is_null()) {
        if manager == keys::FIELD_MANAGER {
            return Author::Bindery;
        }
        author = Author::Other(manager.as_str().into());
    }
    author
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::authors;
    use super::*;

    fn object(entries: &[Value]) -> Value {
        json!({"metadata": {"name": "c", "managedFields": entries}})
    }

    #[test]
    fn the_last_writer_of_the_binders_fields_is_found() {
        let entry = |manager: &str, owned: Value| {
            json!({
                "manager": manager, "operation": "Update", "apiVersion": "v1", "subresource": "status",
                "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": owned,
            })
        };
        let phase = |manager: &str| {
            entry(manager, json!({"f:status": {"f:capacity": {".": {}, "f:storage": {}}, "f:phase": {}}}))
        };
        let mark = |manager: &str| {
            let annotations = json!({".": {}, "f:pv.kubernetes.io/bind-completed": {}});
            entry(
                manager,
                json!({"f:metadata": {"f:annotations": annotations}, "f:spec": {"f:volumeName": {}}}),
            )
        };
        let user = entry("kubectl-patch", json!({"f:metadata": {"f:labels": {"f:phase": {}}}}));
        let reference =
            |manager: &str, fields: Value| entry(manager, json!({"f:spec": {"f:claimRef": fields}}));
        let by_uid = reference("bindery", json!({".": {}, "f:name": {}, "f:uid": {}}));
        let by_name = reference("kubectl-create", json!({"f:name": {}}));
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
            (vec![by_name.clone(), by_uid], [unknown(), unknown(), Author::Bindery]),
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
    fn a_reservation_is_binderys_if_no_other_program_has_written_it_too() {
        let entry = |manager: &str, fields: Value| {
            let owned = json!({"f:spec": {"f:claimRef": fields}});
            json!({"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": owned})
        };
        let own = || entry("bindery", json!({"f:name": {}, "f:namespace": {}}));
        let upstream = entry("kube-controller-manager", json!({"f:uid": {}, "f:resourceVersion": {}}));
        let person = || entry("kubectl-edit", json!({"f:name": {}}));
        for (entries, expected) in [
            (vec![], false),
            (vec![own()], true),
            (vec![own(), upstream], false),
            (vec![person()], false),
            (vec![own(), person()], false),
        ] {
            assert_eq!(super::super::has_reserved(&object(&entries)), expected, "{entries:?}");
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
