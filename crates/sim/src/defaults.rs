//! Defaults, and what only the server may set, by kind (`SetDefaults_…` and the strategies' `PrepareFor…`
//! upstream).

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::object::{self, child_mut, copy_field};
use crate::registry::Resource;

/// Fills in what was left open.
pub(crate) fn apply(resource: &Resource, value: &mut Value) {
    match resource.kind {
        "PersistentVolume" => volume(value),
        "PersistentVolumeClaim" => claim(value),
        "StorageClass" => {
            default(value, "reclaimPolicy", "Delete");
            default(value, "volumeBindingMode", "Immediate");
        }
        "CSIDriver" => driver(value),
        "Pod" => pod(value),
        "Namespace" => namespace(value),
        "Secret" => secret(value),
        _ => {}
    }
}

fn secret(value: &mut Value) {
    default(value, "type", "Opaque");
    let Some(plain) = value.as_object_mut().and_then(|fields| fields.remove("stringData")) else {
        return;
    };
    for (key, text) in plain.as_object().into_iter().flatten() {
        let encoded = crate::protobuf::base64(text.as_str().unwrap_or("").as_bytes());
        child_mut(value, "data").insert(key.clone(), encoded.into());
    }
}

fn default(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(fields) = object.as_object_mut()
        && matches!(fields.get(field), None | Some(Value::Null))
    {
        fields.insert(field.to_owned(), value.into());
    }
}

fn child<'a>(value: &'a mut Value, field: &str) -> &'a mut Value {
    child_mut(value, field);
    &mut value[field]
}

fn volume(value: &mut Value) {
    default(child(value, "status"), "phase", "Pending");
    let spec = child(value, "spec");
    default(spec, "persistentVolumeReclaimPolicy", "Retain");
    default(spec, "volumeMode", "Filesystem");
    volume_source(spec);
}

/// Defaults of in-tree volume sources, of volumes and of pods.
fn volume_source(source: &mut Value) {
    let mut set = |name: &str, field: &str, default_value: Value| {
        if let Some(source) = source.get_mut(name).filter(|source| source.is_object()) {
            default(source, field, default_value);
        }
    };
    set("hostPath", "type", "".into());
    set("iscsi", "iscsiInterface", "default".into());
    set("rbd", "pool", "rbd".into());
    set("rbd", "user", "admin".into());
    set("rbd", "keyring", "/etc/ceph/keyring".into());
    set("azureDisk", "cachingMode", "ReadWrite".into());
    set("azureDisk", "fsType", "ext4".into());
    set("azureDisk", "readOnly", false.into());
    set("azureDisk", "kind", "Shared".into());
    set("scaleIO", "fsType", "xfs".into());
    set("scaleIO", "storageMode", "ThinProvisioned".into());
}

fn claim(value: &mut Value) {
    default(child(value, "status"), "phase", "Pending");
    default(child(value, "spec"), "volumeMode", "Filesystem");
}

fn driver(value: &mut Value) {
    let spec = child(value, "spec");
    default(spec, "attachRequired", true);
    default(spec, "podInfoOnMount", false);
    default(spec, "storageCapacity", false);
    default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    default(spec, "volumeLifecycleModes", json!(["Persistent"]));
    default(spec, "requiresRepublish", false);
    default(spec, "seLinuxMount", false);
}

fn namespace(value: &mut Value) {
    let name = object::name(value).to_owned();
    if !name.is_empty() {
        let labels = child(child(value, "metadata"), "labels");
        labels["kubernetes.io/metadata.name"] = name.into();
    }
    default(child(value, "status"), "phase", "Active");
}

fn pod(value: &mut Value) {
    default(child(value, "status"), "phase", "Pending");
    let spec = child(value, "spec");
    default(spec, "restartPolicy", "Always");
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "schedulerName", "default-scheduler");
    default(spec, "enableServiceLinks", true);
    child_mut(spec, "securityContext");
    for field in ["containers", "initContainers"] {
        for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            self::container(container);
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        pod_volume(volume);
    }
}

fn container(container: &mut Value) {
    let image = object::text(container, "/image");
    let tag = image.rsplit('/').next().unwrap_or("").split_once(':').map(|(_, tag)| tag);
    let policy = match tag {
        _ if image.contains('@') => "IfNotPresent",
        None | Some("latest") => "Always",
        Some(_) => "IfNotPresent",
    };
    default(container, "imagePullPolicy", policy);
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    child_mut(container, "resources");
}

fn pod_volume(volume: &mut Value) {
    volume_source(volume);
    let sources = ["configMap", "secret", "projected", "downwardAPI"];
    for source in sources {
        if let Some(source) = volume.get_mut(source).filter(|source| source.is_object()) {
            default(source, "defaultMode", 420);
        }
    }
    let only_a_name = volume.as_object().is_some_and(|fields| fields.keys().all(|field| field == "name"));
    if only_a_name {
        volume["emptyDir"] = json!({});
    }
    if let Some(template) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec") {
        default(template, "volumeMode", "Filesystem");
    }
}

/// Resets what a creation cannot set.
pub(crate) fn prepare_for_create(resource: &Resource, value: &mut Value, clock: &Clock) {
    match resource.kind {
        "PersistentVolume" => {
            value["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": clock.now_text()});
        }
        "PersistentVolumeClaim" => {
            value["status"] = json!({"phase": "Pending"});
        }
        "Pod" => value["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"}),
        "Namespace" => {
            value["status"] = json!({"phase": "Active"});
            let spec = child(value, "spec");
            let mut finalizers: Vec<Value> = object::items(spec, "/finalizers").to_vec();
            if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
                finalizers.push("kubernetes".into());
            }
            spec["finalizers"] = finalizers.into();
        }
        "VolumeAttachment" => value["status"] = json!({"attached": false}),
        "Event" => event(value),
        _ => {}
    }
}

/// An event without a namespace of its own speaks of nothing; times are the sender's.
fn event(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        for field in ["count", "deprecatedCount"] {
            if fields.get(field).is_some_and(|count| count == 0) {
                fields.remove(field);
            }
        }
    }
}

/// What becomes of a claim's data sources: a `dataSource` that was never supported is dropped, unless the
/// claim had one before; then `dataSource` and `dataSourceRef` say the same where only one is given.
pub(crate) fn data_sources(value: &mut Value, old: Option<&Value>) {
    let had = old.is_some_and(|old| {
        ["/spec/dataSource", "/spec/dataSourceRef"].iter().any(|pointer| old.pointer(pointer).is_some())
    });
    let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    // References into other namespaces are behind a feature gate (CrossNamespaceVolumeDataSource) that is
    // off.
    if !had
        && spec
            .get("dataSourceRef")
            .is_some_and(|reference| !object::text(reference, "/namespace").is_empty())
    {
        spec.remove("dataSourceRef");
    }
    if !had
        && spec.get("dataSourceRef").is_none()
        && !spec.get("dataSource").is_some_and(is_claim_or_snapshot)
    {
        spec.remove("dataSource");
    }
    let (source, reference) = (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned());
    match (source, reference) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".to_owned(), source);
        }
        (None, Some(reference)) if object::text(&reference, "/namespace").is_empty() => {
            spec.insert("dataSource".to_owned(), reference);
        }
        _ => {}
    }
}

fn is_claim_or_snapshot(source: &Value) -> bool {
    let (group, kind) = (object::text(source, "/apiGroup"), object::text(source, "/kind"));
    matches!((group, kind), ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot"))
}

/// Takes from the old object what an update of this (sub)resource cannot change.
pub(crate) fn prepare_for_update(
    resource: &Resource,
    subresource: &str,
    old: &Value,
    value: &mut Value,
    clock: &Clock,
) {
    if !resource.has_status {
        return;
    }
    match subresource {
        "" => {
            // A volume attachment's status could once be written by a main update; v1 keeps it.
            copy_field(old, value, "status");
            if resource.kind == "PersistentVolumeClaim" {
                data_sources(value, Some(old));
            }
            if resource.kind == "Namespace" {
                let finalizers = old.pointer("/spec/finalizers").cloned();
                object::set(child_mut(value, "spec"), "finalizers", finalizers);
            }
        }
        "status" => {
            copy_field(old, value, "spec");
            if resource.kind == "PersistentVolume" {
                phase_transition(old, value, clock);
            }
        }
        // Finalizing a namespace changes its spec only.
        _ => copy_field(old, value, "status"),
    }
}

/// Keeps or sets the time at which a volume's phase changed, as the status strategy does.
fn phase_transition(old: &Value, value: &mut Value, clock: &Clock) {
    const FIELD: &str = "lastPhaseTransitionTime";
    let same_phase = object::text(old, "/status/phase") == object::text(value, "/status/phase");
    let before = old.pointer("/status/lastPhaseTransitionTime").cloned();
    let status = child_mut(value, "status");
    let given = status.get(FIELD).cloned();
    match (same_phase, given) {
        (true, None) => object::set(status, FIELD, before),
        (false, given) if given.is_none() || given == before => {
            status.insert(FIELD.to_owned(), clock.now_text().into());
        }
        _ => {}
    }
}
