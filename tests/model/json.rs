//! Objects of the model in Kubernetes' JSON, for the invariants.

use bindery_core::{AccessMode, Claim, ClaimRef, Quantity, Selector, Volume};
use bindery_kit::gib;
use serde_json::{Map, Value, json};

pub(crate) fn volume(volume: &Volume) -> Value {
    let annotations = annotations(&[
        ("pv.kubernetes.io/bound-by-controller", volume.annotations.bound_by_controller.then_some("yes")),
        ("pv.kubernetes.io/provisioned-by", volume.annotations.provisioned_by.as_deref()),
    ]);
    let finalizers: Vec<&str> = volume.finalizers.iter().map(|finalizer| &**finalizer).collect();
    json!({
        "metadata": {
            "name": &*volume.name,
            "uid": &*volume.uid.0,
            "annotations": annotations,
            "finalizers": finalizers,
            "deletionTimestamp": volume.deleting.then_some("now"),
        },
        "spec": {
            "capacity": {"storage": amount(volume.capacity.as_ref())},
            "accessModes": modes(&volume.access_modes),
            "storageClassName": &*volume.class,
            "volumeMode": volume.mode.name(),
            "volumeAttributesClassName": volume.attributes_class.as_deref(),
            "persistentVolumeReclaimPolicy": volume.policy.name(),
            "claimRef": volume.claim_ref.as_ref().map(claim_ref),
        },
        "status": {"phase": volume.phase.name()},
    })
}

pub(crate) fn claim(claim: &Claim) -> Value {
    let annotations = annotations(&[
        ("pv.kubernetes.io/bind-completed", claim.annotations.bind_completed.then_some("yes")),
        ("pv.kubernetes.io/bound-by-controller", claim.annotations.bound_by_controller.then_some("yes")),
    ]);
    let mut status = json!({
        "phase": claim.status.phase.name(),
        "accessModes": modes(&claim.status.access_modes),
    });
    if let Some(capacity) = &claim.status.capacity {
        status["capacity"] = json!({"storage": amount(Some(capacity))});
    }
    json!({
        "metadata": {
            "namespace": &*claim.key.namespace,
            "name": &*claim.key.name,
            "uid": &*claim.uid.0,
            "annotations": annotations,
            "finalizers": ["kubernetes.io/pvc-protection"],
            "deletionTimestamp": claim.deleting.then_some("now"),
        },
        "spec": {
            "resources": {"requests": {"storage": amount(Some(&claim.request))}},
            "accessModes": modes(&claim.access_modes),
            "selector": {"matchExpressions": claim.selector.as_ref().map(requirements)},
            "storageClassName": claim.class_or_empty(),
            "volumeMode": claim.mode.name(),
            "volumeAttributesClassName": claim.attributes_class.as_deref(),
            "volumeName": claim.volume_name.as_deref().unwrap_or_default(),
        },
        "status": status,
    })
}

fn claim_ref(claim_ref: &ClaimRef) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": &*claim_ref.namespace,
        "name": &*claim_ref.name,
        "uid": claim_ref.uid.as_ref().map_or("", |uid| &*uid.0),
    })
}

fn annotations(all: &[(&str, Option<&str>)]) -> Map<String, Value> {
    let set = all.iter().filter_map(|(key, value)| Some(((*key).to_owned(), json!((*value)?))));
    set.collect()
}

/// The model has two sizes.
fn amount(quantity: Option<&Quantity>) -> Value {
    let sizes = [1, 2].map(|size| (gib(size), format!("{size}Gi")));
    let size = sizes.into_iter().find(|(size, _)| Some(size) == quantity);
    json!(size.expect("the model has no other size").1)
}

fn modes(modes: &[AccessMode]) -> Vec<&'static str> {
    modes.iter().map(|mode| mode.name()).collect()
}

/// The model asks for labels only by their key.
fn requirements(selector: &Selector) -> Vec<Value> {
    let Selector::Requirements(requirements) = selector else { panic!("the model has no invalid selector") };
    requirements.iter().map(|it| json!({"key": &*it.key, "operator": "Exists"})).collect()
}
