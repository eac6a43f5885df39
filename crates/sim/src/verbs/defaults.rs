//! Defaults, and the fields that only the server sets, by kind (upstream's `SetDefaults_…`, and `PrepareFor…`
//! of the strategies).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::object::{self, child_mut, copy_field};
use crate::registry::{CLAIM, CLASS, EVENT, NAMESPACE, POD, Resource, VOLUME};

/// Fills in defaults.
pub(super) fn apply(resource: &Resource, value: &mut Value) {
    match resource.kind {
        VOLUME => volume(value),
        CLAIM => claim(value),
        CLASS => {
            default(value, "reclaimPolicy", "Delete");
            default(value, "volumeBindingMode", "Immediate");
        }
        "CSIDriver" => driver(value),
        POD => pod(value),
        NAMESPACE => namespace(value),
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
        let encoded = BASE64_STANDARD.encode(text.as_str().unwrap_or(""));
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
    for (name, field, text) in [
        ("hostPath", "type", ""),
        ("iscsi", "iscsiInterface", "default"),
        ("rbd", "pool", "rbd"),
        ("rbd", "user", "admin"),
        ("rbd", "keyring", "/etc/ceph/keyring"),
        ("azureDisk", "cachingMode", "ReadWrite"),
        ("azureDisk", "fsType", "ext4"),
        ("azureDisk", "kind", "Shared"),
        ("scaleIO", "fsType", "xfs"),
        ("scaleIO", "storageMode", "ThinProvisioned"),
    ] {
        default_of(source, name, field, text);
    }
    default_of(source, "azureDisk", "readOnly", false);
}

/// A default of a child object, if there is one.
fn default_of(object: &mut Value, child: &str, field: &str, value: impl Into<Value>) {
    if let Some(child) = object.get_mut(child).filter(|child| child.is_object()) {
        default(child, field, value);
    }
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
    for source in ["configMap", "secret", "projected", "downwardAPI"] {
        default_of(volume, source, "defaultMode", 420);
    }
    let only_a_name = volume.as_object().is_some_and(|fields| fields.keys().all(|field| field == "name"));
    if only_a_name {
        volume["emptyDir"] = json!({});
    }
    if let Some(template) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec") {
        default(template, "volumeMode", "Filesystem");
    }
}

/// Resets the fields that a creation cannot set.
pub(super) fn prepare_for_create(resource: &Resource, value: &mut Value, clock: &Clock) {
    match resource.kind {
        VOLUME => {
            value["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": clock.now_text()});
        }
        CLAIM => {
            value["status"] = json!({"phase": "Pending"});
            data_sources(value, None);
        }
        POD => value["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"}),
        NAMESPACE => {
            value["status"] = json!({"phase": "Active"});
            let spec = child(value, "spec");
            let mut finalizers: Vec<Value> = object::items(spec, "/finalizers").to_vec();
            if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
                finalizers.push("kubernetes".into());
            }
            spec["finalizers"] = finalizers.into();
        }
        "VolumeAttachment" => value["status"] = json!({"attached": false}),
        EVENT => {
            if let Some(fields) = value.as_object_mut() {
                fields.retain(|field, value| {
                    !matches!(field.as_str(), "count" | "deprecatedCount") || *value != 0
                });
            }
        }
        _ => {}
    }
}

/// Drops unsupported data sources of a claim that had none before. Copies `dataSource` to `dataSourceRef`, or
/// the reverse, if only one is given.
fn data_sources(value: &mut Value, old: Option<&Value>) {
    let had = old.is_some_and(|old| {
        ["/spec/dataSource", "/spec/dataSourceRef"].iter().any(|pointer| old.pointer(pointer).is_some())
    });
    let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let crosses = |reference: &Value| !object::text(reference, "/namespace").is_empty();
    // The feature gate for references into other namespaces, CrossNamespaceVolumeDataSource, is off.
    if !had && spec.get("dataSourceRef").is_some_and(crosses) {
        spec.remove("dataSourceRef");
    }
    let supported =
        spec.contains_key("dataSourceRef") || spec.get("dataSource").is_some_and(is_claim_or_snapshot);
    if !had && !supported {
        spec.remove("dataSource");
    }
    let (source, reference) = (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned());
    match (source, reference) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".to_owned(), source);
        }
        (None, Some(reference)) if !crosses(&reference) => {
            spec.insert("dataSource".to_owned(), reference);
        }
        _ => {}
    }
}

fn is_claim_or_snapshot(source: &Value) -> bool {
    let (group, kind) = (object::text(source, "/apiGroup"), object::text(source, "/kind"));
    matches!((group, kind), ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot"))
}

/// Takes the fields that an update of this resource or subresource cannot change from the old object.
pub(super) fn prepare_for_update(
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
            copy_field(old, value, "status");
            if resource.kind == CLAIM {
                data_sources(value, Some(old));
            }
            if resource.kind == NAMESPACE {
                let finalizers = old.pointer("/spec/finalizers").cloned();
                object::set(child_mut(value, "spec"), "finalizers", finalizers);
            }
        }
        "status" => {
            copy_field(old, value, "spec");
            if resource.kind == VOLUME {
                phase_transition(old, value, clock);
            }
        }
        // Finalizing a namespace changes only its spec.
        _ => copy_field(old, value, "status"),
    }
}

/// Keeps or sets `lastPhaseTransitionTime` of a volume, as the status strategy does.
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
