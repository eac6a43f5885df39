//! Defaults, and the fields that only the server sets, by kind (upstream's `SetDefaults_…`, and `PrepareFor…`
//! of the strategies).

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::object::{self, child_mut, copy_field};
use crate::registry::{APPS, BATCH, CLAIM, ENDPOINTS, EVENT, NAMESPACE, POD, Resource, VOLUME};

/// The fixed defaults of each kind. Missing objects are added, except for fields that begin with `?`.
static DEFAULTS: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../data/defaults.json")).expect("the defaults are JSON")
});

/// Fills in defaults.
pub(super) fn apply(resource: &Resource, value: &mut Value) {
    fill(value, &DEFAULTS[resource.kind]);
    match resource.kind {
        VOLUME => fill(&mut value["spec"], &DEFAULTS["volume source"]),
        POD => pod(&mut value["spec"]),
        "Service" => service(&mut value["spec"]),
        ENDPOINTS => {
            for port in children(value, "subsets").flat_map(|subset| children(subset, "ports")) {
                fill(port, &DEFAULTS["port"]);
            }
        }
        "EndpointSlice" => {
            for port in children(value, "ports") {
                fill(port, &json!({"name": "", "protocol": "TCP"}));
            }
        }
        "CronJob" => pod_template(&mut value["spec"]["jobTemplate"]["spec"]["template"]),
        "ReplicationController" => workload(resource, value),
        _ if matches!(resource.group, APPS | BATCH) => workload(resource, value),
        NAMESPACE if !object::name(value).is_empty() => {
            let name = object::name(value).to_owned();
            child_mut(value, "metadata");
            child_mut(&mut value["metadata"], "labels")
                .insert("kubernetes.io/metadata.name".to_owned(), name.into());
        }
        "Secret" => encode_plain_data(value),
        _ => {}
    }
}

/// Adds the missing fields of an object.
fn fill(object: &mut Value, defaults: &Value) {
    if !object.is_object() {
        return;
    }
    for (field, default) in defaults.as_object().into_iter().flatten() {
        if let Some(field) = field.strip_prefix('?') {
            if let Some(child) = object.get_mut(field).filter(|child| child.is_object()) {
                fill(child, default);
            }
        } else if default.is_object() {
            child_mut(object, field);
            fill(&mut object[field], default);
        } else if object.get(field).is_none_or(Value::is_null) {
            object[field] = default.clone();
        }
    }
}

/// The items of a list.
fn children<'v>(object: &'v mut Value, field: &str) -> impl Iterator<Item = &'v mut Value> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

fn pod(spec: &mut Value) {
    for field in ["containers", "initContainers"] {
        for container in children(spec, field) {
            fill(container, &json!({"imagePullPolicy": pull_policy(object::text(container, "/image"))}));
            fill(container, &DEFAULTS["container"]);
            for port in children(container, "ports") {
                fill(port, &DEFAULTS["port"]);
            }
        }
    }
    for volume in children(spec, "volumes") {
        fill(volume, &DEFAULTS["volume source"]);
        fill(volume, &DEFAULTS["pod volume"]);
        if volume.as_object().is_some_and(|fields| fields.keys().all(|field| field == "name")) {
            volume["emptyDir"] = json!({});
        }
    }
}

fn pod_template(template: &mut Value) {
    fill(template, &DEFAULTS[POD]);
    copy_field(&Value::Null, template, "status");
    // Only pods themselves have this default.
    copy_field(&Value::Null, &mut template["spec"], "enableServiceLinks");
    pod(&mut template["spec"]);
}

/// An object with a template of pods.
fn workload(resource: &Resource, value: &mut Value) {
    let spec = &mut value["spec"];
    pod_template(&mut spec["template"]);
    for claim in children(spec, "volumeClaimTemplates") {
        fill(claim, &DEFAULTS[CLAIM]);
        fill(claim, &json!({"apiVersion": "v1", "kind": CLAIM}));
    }
    for strategy in ["strategy", "updateStrategy"] {
        if spec[strategy]["type"] == "RollingUpdate" {
            child_mut(spec, strategy).entry("rollingUpdate").or_insert_with(|| json!({}));
        }
    }
    fill(value, &DEFAULTS[resource.kind]);
    // Only these have the labels of their pods by default.
    let has_own = !object::is_empty(value.pointer("/metadata/labels"));
    if matches!(resource.kind, "Job" | "ReplicationController") && !has_own {
        let labels = value.pointer("/spec/template/metadata/labels").cloned();
        object::set(object::meta_mut(value), "labels", labels);
    }
}

fn service(spec: &mut Value) {
    for port in children(spec, "ports") {
        fill(port, &DEFAULTS["port"]);
        if object::is_empty(port.get("targetPort")) {
            port["targetPort"] = port["port"].clone();
        }
    }
    if let Some(address) = spec.get("clusterIP").cloned() {
        fill(spec, &json!({"clusterIPs": [address]}));
    }
}

fn pull_policy(image: &str) -> &'static str {
    let tag = image.rsplit('/').next().unwrap_or("").split_once(':').map(|(_, tag)| tag);
    match tag {
        None | Some("latest") if !image.contains('@') => "Always",
        _ => "IfNotPresent",
    }
}

/// Moves `stringData` of a Secret to `data`.
fn encode_plain_data(secret: &mut Value) {
    let plain = secret.as_object_mut().and_then(|fields| fields.remove("stringData"));
    for (key, text) in plain.as_ref().and_then(Value::as_object).into_iter().flatten() {
        let encoded = BASE64_STANDARD.encode(text.as_str().unwrap_or(""));
        child_mut(secret, "data").insert(key.clone(), encoded.into());
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
            let mut finalizers: Vec<Value> = object::items(value, "/spec/finalizers").to_vec();
            if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
                finalizers.push("kubernetes".into());
            }
            child_mut(value, "spec").insert("finalizers".to_owned(), finalizers.into());
        }
        "VolumeAttachment" => value["status"] = json!({"attached": false}),
        _ if resource.not_run => value["status"] = DEFAULTS[resource.kind]["status"].clone(),
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
