//! Writes as requests: plain values, no IO.
//!
//! Every change is a JSON merge patch whose metadata carries the UID and the resourceVersion that the API
//! server must find, so that it is refused if the object has changed. A patch sends only what changes: fields
//! that this version of Bindery does not know stay as they are. The fields and their values are those that
//! upstream's full updates change.

#[cfg(test)]
mod tests;

use bindery_controller::{Write, WriteError};
use bindery_core::steer::{self, SteerWrite};
use bindery_core::{
    Action, CapacityChange, ClaimKey, ClaimTarget, Clear, Edit, FINALIZER_IN_TREE, Text, VolumeTarget,
};
use serde_json::{Map, Value, json};

use crate::keys::{self, FIELD_MANAGER};
use crate::rest;

/// A volume that a plugin has provisioned: the manifest of a PersistentVolume, with the `metadata` that the
/// plugin wants to keep, and the `spec` with its source. Name, claimRef, class, annotations and finalizer of
/// the binder are added when it is created.
#[derive(Clone, Debug, PartialEq)]
pub struct Template(pub Value);

/// A request, ready to be sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outgoing {
    pub(crate) method: http::Method,
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// The request of a write. Fails if a name cannot be part of a path, or a template is not an object.
pub(crate) fn of(write: &Write<Template>) -> Result<Outgoing, WriteError> {
    let mut request = of_action(write)?;
    for (key, value) in &write.annotations {
        request.body["metadata"]["annotations"][*key] = value.as_ref().map_or(Value::Null, text);
    }
    if let Some(policy) = write.reclaim_policy {
        request.body["spec"]["persistentVolumeReclaimPolicy"] = policy.name().into();
    }
    Ok(request)
}

/// The request of a write of mode steer. Fails if a name cannot be part of a path.
pub(crate) fn of_steering(write: &SteerWrite) -> Result<Outgoing, WriteError> {
    let annotate = |key: &str, value: Value| json!({"metadata": {"annotations": {key: value}}});
    match write {
        SteerWrite::Choose { claim, choice } => {
            patch_claim(claim, "", annotate(steer::CHOICE, choice.annotation().into()))
        }
        SteerWrite::Touch { claim } => {
            patch_claim(claim, "", annotate(steer::TOUCHED, text(&claim.version.0)))
        }
        SteerWrite::Fence { volume, claim } => {
            patch_volume(volume, "", annotate(steer::FENCE, text(&steer::fence(claim))))
        }
        SteerWrite::Reserve { volume, reservation } => {
            let mut change = annotate(steer::RESERVED_FOR, reservation.annotation().into());
            change["spec"]["claimRef"] = json!({
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "namespace": *reservation.claim.namespace,
                "name": *reservation.claim.name,
            });
            patch_volume(volume, "", change)
        }
        SteerWrite::Release { volume } => {
            let mut change = annotate(steer::RESERVED_FOR, Value::Null);
            change["spec"]["claimRef"] = Value::Null;
            patch_volume(volume, "", change)
        }
        SteerWrite::Label { volume, reservation } => {
            label(volume, &reservation.claim, text(&reservation.uid.0))
        }
        SteerWrite::Unlabel { volume, claim } => label(volume, claim, Value::Null),
        SteerWrite::Forget { volume } => patch_volume(volume, "", annotate(steer::RESERVED_FOR, Value::Null)),
    }
}

/// The request that puts the label that steers a claim on a volume, or removes it.
fn label(volume: &VolumeTarget, claim: &ClaimKey, value: Value) -> Result<Outgoing, WriteError> {
    let Some(key) = steer::steering_key(claim) else {
        return Err(WriteError::Invalid(format!("claim {claim} has names that do not fit into a label")));
    };
    patch_volume(volume, "", json!({"metadata": {"labels": {key: value}}}))
}

fn of_action(write: &Write<Template>) -> Result<Outgoing, WriteError> {
    match &write.action {
        Action::ReserveVolume { volume, claim, mark } => patch_volume(volume, "", reservation(claim, *mark)),
        Action::SetVolumePhase { volume, phase, message } => {
            let message = Some(message.to_string()).filter(|text| !text.is_empty());
            patch_volume(volume, "/status", json!({"status": {"phase": phase.name(), "message": message}}))
        }
        Action::AnnotateVolume { volume, migrated_to, .. } => {
            let mut annotations = Map::new();
            edit(&mut annotations, keys::MIGRATED_TO, migrated_to, text);
            let mut metadata =
                if annotations.is_empty() { json!({}) } else { json!({"annotations": annotations}) };
            if let Some(finalizers) = &write.finalizers {
                metadata["finalizers"] = list(finalizers.iter().map(|finalizer| &**finalizer));
            }
            patch_volume(volume, "", json!({"metadata": metadata}))
        }
        Action::SetReclaimPolicy { volume, policy } => {
            patch_volume(volume, "", json!({"spec": {"persistentVolumeReclaimPolicy": policy.name()}}))
        }
        Action::UnbindVolume { volume, clear } => {
            let change = match clear {
                Clear::Whole => json!({
                    "metadata": {"annotations": {keys::BOUND_BY_CONTROLLER: null}},
                    "spec": {"claimRef": null},
                }),
                Clear::Uid => json!({"spec": {"claimRef": {"uid": null}}}),
            };
            patch_volume(volume, "", change)
        }
        Action::CreateVolume { claim, name, class, plugin } => {
            create_volume(claim, name, class, plugin, write.template.as_ref())
        }
        Action::DeleteVolume { volume } => delete_volume(volume),
        action => claim_patch(action),
    }
}

fn claim_patch(action: &Action) -> Result<Outgoing, WriteError> {
    match action {
        Action::BindClaim { claim, volume, set_volume_name, mark } => {
            let mut annotations = json!({keys::BIND_COMPLETED: keys::YES});
            if *mark {
                annotations[keys::BOUND_BY_CONTROLLER] = keys::YES.into();
            }
            let mut change = json!({"metadata": {"annotations": annotations}});
            if *set_volume_name {
                change["spec"] = json!({"volumeName": *volume.name});
            }
            patch_claim(claim, "", change)
        }
        Action::SetClaimStatus { claim, phase, access_modes, capacity, attributes_class } => {
            let mut status = Map::from_iter([("phase".to_owned(), phase.name().into())]);
            edit(&mut status, "capacity", &storage(capacity), |amount| json!({"storage": amount}));
            edit(&mut status, "accessModes", access_modes, |modes| match modes.as_slice() {
                [] => Value::Null,
                modes => list(modes.iter().map(|mode| mode.name())),
            });
            edit(&mut status, "currentVolumeAttributesClassName", attributes_class, text);
            patch_claim(claim, "/status", json!({"status": status}))
        }
        Action::SetClaimClass { claim, class } => {
            patch_claim(claim, "", json!({"spec": {"storageClassName": **class}}))
        }
        Action::AnnotateClaim { claim, provisioner, migrated_to } => {
            let mut annotations = Map::new();
            if let Some(provisioner) = provisioner {
                for key in [keys::STORAGE_PROVISIONER, keys::BETA_STORAGE_PROVISIONER] {
                    annotations.insert(key.to_owned(), text(provisioner));
                }
            }
            edit(&mut annotations, keys::MIGRATED_TO, migrated_to, text);
            patch_claim(claim, "", json!({"metadata": {"annotations": annotations}}))
        }
        Action::RemoveSelectedNode { claim } => {
            patch_claim(claim, "", json!({"metadata": {"annotations": {keys::SELECTED_NODE: null}}}))
        }
        other => Err(WriteError::Invalid(format!("this action is not a write: {other:?}"))),
    }
}

/// `spec.claimRef` in full, as upstream's `GetReference` makes it, and the mark.
fn reservation(claim: &ClaimTarget, mark: bool) -> Value {
    let mut change = json!({"spec": {"claimRef": reference(claim)}});
    // A reference replaces the old one, but a merge keeps fields that it does not name.
    change["spec"]["claimRef"]["fieldPath"] = Value::Null;
    if mark {
        change["metadata"] = json!({"annotations": {keys::BOUND_BY_CONTROLLER: keys::YES}});
    }
    change
}

pub(crate) fn reference(claim: &ClaimTarget) -> Value {
    json!({
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": *claim.key.namespace,
        "name": *claim.key.name,
        "uid": *claim.uid.0,
        "resourceVersion": *claim.version.0,
    })
}

/// The API knows no other capacity of a claim than `storage`, so replacing the whole map and replacing that
/// key are the same.
fn storage(change: &CapacityChange) -> Edit<String> {
    match change {
        CapacityChange::Keep => Edit::Keep,
        CapacityChange::Remove => Edit::Remove,
        CapacityChange::Storage(amount) | CapacityChange::Whole(amount) => Edit::Set(amount.to_string()),
    }
}

fn create_volume(
    claim: &ClaimTarget,
    name: &Text,
    class: &Text,
    plugin: &Text,
    template: Option<&Template>,
) -> Result<Outgoing, WriteError> {
    let not_an_object = || WriteError::Invalid(format!("plugin {plugin:?} provisioned no PersistentVolume"));
    let mut body = template.ok_or_else(not_an_object)?.0.clone();
    let object = body.as_object_mut().ok_or_else(not_an_object)?;
    object.insert("apiVersion".to_owned(), "v1".into());
    object.insert("kind".to_owned(), "PersistentVolume".into());
    // The API server discards it, but upstream writes it.
    object.insert("status".to_owned(), json!({"phase": "Bound"}));
    let metadata = child(object, "metadata").ok_or_else(not_an_object)?;
    metadata.insert("name".to_owned(), text(name));
    let annotations = child(metadata, "annotations").ok_or_else(not_an_object)?;
    annotations.insert(keys::BOUND_BY_CONTROLLER.to_owned(), keys::YES.into());
    annotations.insert(keys::PROVISIONED_BY.to_owned(), text(plugin));
    let spec = child(object, "spec").ok_or_else(not_an_object)?;
    spec.insert("claimRef".to_owned(), reference(claim));
    spec.insert("storageClassName".to_owned(), text(class));
    if spec.get("persistentVolumeReclaimPolicy").and_then(Value::as_str) == Some("Delete") {
        body["metadata"]["finalizers"] = json!([FINALIZER_IN_TREE]);
    }
    Ok(Outgoing {
        method: http::Method::POST,
        path: format!("/api/v1/persistentvolumes?fieldManager={FIELD_MANAGER}"),
        body,
    })
}

fn child<'a>(object: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    object.entry(key).or_insert_with(|| json!({})).as_object_mut()
}

fn delete_volume(volume: &VolumeTarget) -> Result<Outgoing, WriteError> {
    Ok(Outgoing {
        method: http::Method::DELETE,
        path: volume_path(&volume.name)?,
        body: json!({
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": *volume.uid.0, "resourceVersion": *volume.version.0},
        }),
    })
}

fn patch_volume(volume: &VolumeTarget, subresource: &str, change: Value) -> Result<Outgoing, WriteError> {
    Ok(patch(&volume_path(&volume.name)?, subresource, change, &volume.uid.0, &volume.version.0))
}

fn patch_claim(claim: &ClaimTarget, subresource: &str, change: Value) -> Result<Outgoing, WriteError> {
    Ok(patch(&claim_path(&claim.key)?, subresource, change, &claim.uid.0, &claim.version.0))
}

fn patch(path: &str, subresource: &str, mut change: Value, uid: &str, version: &str) -> Outgoing {
    change["metadata"]["uid"] = uid.into();
    change["metadata"]["resourceVersion"] = version.into();
    Outgoing {
        method: http::Method::PATCH,
        path: format!("{path}{subresource}?fieldManager={FIELD_MANAGER}"),
        body: change,
    }
}

fn edit<T>(object: &mut Map<String, Value>, key: &str, change: &Edit<T>, value: impl Fn(&T) -> Value) {
    match change {
        Edit::Keep => {}
        Edit::Set(new) => drop(object.insert(key.to_owned(), value(new))),
        Edit::Remove => drop(object.insert(key.to_owned(), Value::Null)),
    }
}

fn text(text: &Text) -> Value {
    Value::from(&**text)
}

fn list<'a>(items: impl Iterator<Item = &'a str>) -> Value {
    items.map(Value::from).collect()
}

/// The path of a volume.
pub(crate) fn volume_path(name: &str) -> Result<String, WriteError> {
    Ok(format!("/api/v1/persistentvolumes/{}", segment(name)?))
}

/// The path of a claim.
pub(crate) fn claim_path(key: &ClaimKey) -> Result<String, WriteError> {
    let (namespace, name) = (segment(&key.namespace)?, segment(&key.name)?);
    Ok(format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"))
}

/// The path of a ConfigMap.
pub(crate) fn config_map_path(namespace: &str, name: &str) -> Result<String, WriteError> {
    Ok(format!("/api/v1/namespaces/{}/configmaps/{}", segment(namespace)?, segment(name)?))
}

/// Whether a text can be the name of an object, which is one segment of a path (`IsValidPathSegmentName` in
/// apimachinery).
pub(crate) fn is_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '%'])
}

/// A name as one segment of a path. Another text did not come from an API server, and must not become another
/// path.
pub(crate) fn segment(name: &str) -> Result<String, WriteError> {
    if !is_name(name) {
        return Err(WriteError::Invalid(format!("{name:?} is not the name of an object")));
    }
    Ok(rest::encode(name))
}
