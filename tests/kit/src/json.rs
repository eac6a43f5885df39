//! Objects as JSON, for requests to an API server.

use serde_json::{Value, json};

/// An available PersistentVolume of 1Gi without a class, changed by a JSON merge patch.
pub fn volume(name: &str, change: Value) -> Value {
    let volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": format!("/nonexistent/{name}")},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    });
    merged(volume, change)
}

/// A PersistentVolumeClaim for 1Gi in namespace `default` with the empty class, changed by a JSON merge
/// patch.
pub fn claim(name: &str, change: Value) -> Value {
    let claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
        },
    });
    merged(claim, change)
}

/// A StorageClass of a provisioner, changed by a JSON merge patch.
pub fn class(name: &str, provisioner: &str, change: Value) -> Value {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
    });
    merged(class, change)
}

/// A policy or an engine, as a document or a cluster object.
pub fn policy(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "policy.bindery.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// A Node that is ready, though no kubelet serves it: it takes any number of pods, and runs none.
pub fn node(name: &str) -> Value {
    let resources = json!({"cpu": "8", "memory": "8Gi", "pods": "1000000"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// A Pod in namespace `default`, changed by a JSON merge patch. It tolerates that no kubelet reports its
/// node's state.
pub fn pod(name: &str, change: Value) -> Value {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [{"name": "main", "image": "registry.k8s.io/pause"}],
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": false,
        },
    });
    merged(pod, change)
}

/// `object` after a JSON merge patch (RFC 7396): null removes a field, objects merge, other values replace.
pub fn merged(mut object: Value, change: Value) -> Value {
    json_patch::merge(&mut object, &change);
    object
}
