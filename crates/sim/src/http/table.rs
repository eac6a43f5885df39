//! `Table` output: the real server's columns and rows (upstream's `pkg/printers/internalversion`).

mod age;
mod pod;
mod workload;

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::object::{self, items, text, texts};
use crate::registry::{CLAIM, CLASS, EVENT, NAMESPACE, POD, Resource, VOLUME};
use age::since;

/// The recorded column definitions of a real server, by path (`examples/capture.rs`).
static COLUMNS: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../data/columns.json")).expect("the columns are generated JSON")
});

/// The part of each object that a table includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

impl Include {
    /// Reads the query parameter `includeObject`.
    pub(crate) fn of(text: &str) -> Option<Self> {
        match text {
            "None" => Some(Include::None),
            "Object" => Some(Include::Object),
            "" | "Metadata" => Some(Include::Metadata),
            _ => None,
        }
    }
}

/// Whether a table has column definitions. In a watch only the first table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    With,
    Without,
}

/// An object or a list as a table.
pub(crate) fn table(
    resource: &Resource,
    body: &Value,
    include: Include,
    header: Header,
    clock: &Clock,
) -> Value {
    let path = format!("{}/{}", resource.path(), resource.plural);
    let objects = body.get("items").and_then(Value::as_array);
    let objects = objects.map_or(std::slice::from_ref(body), Vec::as_slice);
    let rows: Vec<Value> = objects.iter().map(|object| row(resource, object, include, clock)).collect();
    let metadata = match body.get("items") {
        Some(_) => body["metadata"].clone(),
        None => json!({"resourceVersion": object::resource_version(body)}),
    };
    let columns = match header {
        Header::With => COLUMNS.get(&path).cloned().unwrap_or_else(|| json!([])),
        Header::Without => Value::Null,
    };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn row(resource: &Resource, object: &Value, include: Include, clock: &Clock) -> Value {
    let mut row = json!({"cells": cells(resource, object, clock), "object": null});
    if resource.kind == POD
        && let Some(conditions) = pod::conditions(object)
    {
        row["conditions"] = conditions;
    }
    match include {
        Include::None => {}
        Include::Metadata => {
            row["object"] = json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": object["metadata"],
            });
        }
        Include::Object => {
            row["object"] = object.clone();
            row["object"]["apiVersion"] = resource.api_version().into();
            row["object"]["kind"] = resource.kind.into();
        }
    }
    row
}

fn cells(resource: &Resource, object: &Value, clock: &Clock) -> Value {
    let name = object::name(object);
    let age = since(object::meta_text(object, "creationTimestamp"), clock);
    let entries = |field: &str| object.get(field).and_then(Value::as_object).map_or(0, serde_json::Map::len);
    match resource.kind {
        VOLUME => volume(object, &age),
        CLAIM => claim(object, &age),
        POD => pod::cells(object, clock),
        "Node" => node(object, &age),
        EVENT => event(object, clock),
        CLASS => class(object, &age),
        "CSIDriver" => driver(object, &age),
        NAMESPACE => json!([name, text(object, "/status/phase"), age]),
        "Secret" => json!([name, text(object, "/type"), entries("data"), age]),
        "ConfigMap" => json!([name, entries("data") + entries("binaryData"), age]),
        "VolumeAttributesClass" => json!([name, text(object, "/driverName"), age]),
        "Lease" => json!([name, text(object, "/spec/holderIdentity"), age]),
        "CSINode" => json!([name, items(object, "/spec/drivers").len(), age]),
        // The real server has no special columns here; the second is "Created At".
        "CSIStorageCapacity" => json!([name, object::meta_text(object, "creationTimestamp")]),
        "VolumeAttachment" => json!([
            name,
            text(object, "/spec/attacher"),
            text(object, "/spec/source/persistentVolumeName"),
            text(object, "/spec/nodeName"),
            flag(object, "/status/attached"),
            age,
        ]),
        "Deployment" => workload::deployment(object, &age),
        "StatefulSet" => workload::stateful_set(object, &age),
        "ReplicaSet" => workload::replica_set(object, "/spec/selector/matchLabels", &age),
        "ReplicationController" => workload::replica_set(object, "/spec/selector", &age),
        "DaemonSet" => workload::daemon_set(object, &age),
        "Job" => workload::job(object, &age),
        "CronJob" => workload::cron_job(object, &age),
        "Ingress" => workload::ingress(object, &age),
        "Service" => workload::service(object, &age),
        "Endpoints" => workload::endpoints(object, &age),
        "EndpointSlice" => workload::endpoint_slice(object, &age),
        _ => json!([name, age]),
    }
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

/// Texts with commas between them, or `<none>`.
fn phrase(texts: impl Iterator<Item = String>) -> String {
    let joined = texts.collect::<Vec<_>>().join(",");
    if joined.is_empty() { "<none>".to_owned() } else { joined }
}

fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}

fn phase(object: &Value) -> &str {
    if object::is_deleting(object) { "Terminating" } else { text(object, "/status/phase") }
}

fn access_modes(list: Option<&Value>) -> String {
    let given = texts(list);
    let known = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let short: Vec<&str> =
        known.iter().filter(|(mode, _)| given.contains(mode)).map(|(_, short)| *short).collect();
    short.join(",")
}

fn optional<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or("<unset>")
}

fn volume(volume: &Value, age: &str) -> Value {
    let claim = volume
        .pointer("/spec/claimRef")
        .map(|claim| format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")))
        .unwrap_or_default();
    json!([
        object::name(volume),
        or(text(volume, "/spec/capacity/storage"), "0"),
        access_modes(volume.pointer("/spec/accessModes")),
        text(volume, "/spec/persistentVolumeReclaimPolicy"),
        phase(volume),
        claim,
        object::class(volume),
        optional(volume, "/spec/volumeAttributesClassName"),
        text(volume, "/status/reason"),
        age,
        optional(volume, "/spec/volumeMode"),
    ])
}

fn claim(claim: &Value, age: &str) -> Value {
    let volume = text(claim, "/spec/volumeName");
    let (capacity, modes) = if volume.is_empty() {
        ("", String::new())
    } else {
        (or(text(claim, "/status/capacity/storage"), "0"), access_modes(claim.pointer("/status/accessModes")))
    };
    json!([
        object::name(claim),
        phase(claim),
        volume,
        capacity,
        modes,
        object::class(claim),
        optional(claim, "/spec/volumeAttributesClassName"),
        age,
        optional(claim, "/spec/volumeMode"),
    ])
}

fn class(class: &Value, age: &str) -> Value {
    let name = object::name(class);
    json!([
        if object::is_default_class(class) { format!("{name} (default)") } else { name.to_owned() },
        text(class, "/provisioner"),
        or(text(class, "/reclaimPolicy"), "Delete"),
        or(text(class, "/volumeBindingMode"), "Immediate"),
        flag(class, "/allowVolumeExpansion"),
        age,
    ])
}

fn driver(driver: &Value, age: &str) -> Value {
    let tokens = driver.pointer("/spec/tokenRequests").and_then(Value::as_array).map(|requests| {
        requests.iter().map(|request| text(request, "/audience")).collect::<Vec<_>>().join(",")
    });
    let modes = texts(driver.pointer("/spec/volumeLifecycleModes")).join(",");
    json!([
        object::name(driver),
        driver.pointer("/spec/attachRequired").and_then(Value::as_bool).unwrap_or(true),
        flag(driver, "/spec/podInfoOnMount"),
        flag(driver, "/spec/storageCapacity"),
        tokens.as_deref().unwrap_or("<unset>"),
        flag(driver, "/spec/requiresRepublish"),
        or(&modes, "<none>"),
        age,
    ])
}

fn node(node: &Value, age: &str) -> Value {
    let ready = items(node, "/status/conditions").iter().find(|condition| condition["type"] == "Ready");
    let mut status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if flag(node, "/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<&str> = Vec::new();
    for (label, value) in object::meta_field(node, "labels").and_then(Value::as_object).into_iter().flatten()
    {
        match label.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => roles.push(role),
            None if label == "kubernetes.io/role" => {
                roles.extend(value.as_str().filter(|role| !role.is_empty()))
            }
            _ => {}
        }
    }
    roles.sort_unstable();
    roles.dedup();
    let address = |kind: &str| {
        let address = items(node, "/status/addresses").iter().find(|address| address["type"] == kind);
        address.map_or("<none>", |address| text(address, "/address"))
    };
    let info = |field: &str| text(node, &format!("/status/nodeInfo/{field}"));
    let mut kernel = or(info("kernelVersion"), "<unknown>").to_owned();
    if !info("architecture").is_empty() {
        kernel = format!("{kernel} ({})", info("architecture"));
    }
    json!([
        object::name(node),
        status,
        or(&roles.join(","), "<none>"),
        age,
        info("kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        or(info("osImage"), "<unknown>"),
        kernel,
        or(info("containerRuntimeVersion"), "<unknown>"),
    ])
}

/// The row of an event of either API group.
fn event(event: &Value, clock: &Clock) -> Value {
    let field = |core: &'static str, new: &'static str| {
        let core = text(event, core);
        if core.is_empty() { text(event, new) } else { core }
    };
    let first = field("/firstTimestamp", "/deprecatedFirstTimestamp");
    let first = since(or(first, text(event, "/eventTime")), clock);
    let last = field("/lastTimestamp", "/deprecatedLastTimestamp");
    let mut last = if last.is_empty() { first.clone() } else { since(last, clock) };
    let counted = event.get("count").or_else(|| event.get("deprecatedCount"));
    let mut count = counted.and_then(Value::as_i64).filter(|count| *count != 0).unwrap_or(1);
    if let Some(series) = event.get("series").filter(|series| series.is_object()) {
        last = since(text(series, "/lastObservedTime"), clock);
        count = series["count"].as_i64().unwrap_or(0);
    }
    let kind = field("/involvedObject/kind", "/regarding/kind").to_lowercase();
    let name = field("/involvedObject/name", "/regarding/name");
    let target = if name.is_empty() { kind } else { format!("{kind}/{name}") };
    let component = or(
        field("/source/component", "/deprecatedSource/component"),
        field("/reportingComponent", "/reportingController"),
    );
    let host = or(field("/source/host", "/deprecatedSource/host"), text(event, "/reportingInstance"));
    let source = if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") };
    json!([
        last,
        text(event, "/type"),
        text(event, "/reason"),
        target,
        field("/involvedObject/fieldPath", "/regarding/fieldPath"),
        source,
        field("/message", "/note").trim(),
        first,
        count,
        object::name(event),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{AUTHORIZATION, RESOURCES};

    #[test]
    fn the_row_of_each_kind_has_a_cell_for_each_column() {
        let clock = Clock::default();
        for resource in RESOURCES.iter().filter(|resource| resource.group != AUTHORIZATION) {
            let object = json!({"metadata": {"name": "x", "creationTimestamp": "2025-12-31T23:00:00Z"}});
            let table = table(resource, &object, Include::Metadata, Header::With, &clock);
            let columns = table["columnDefinitions"].as_array().unwrap().len();
            assert_ne!(columns, 0, "{}", resource.plural);
            assert_eq!(table["rows"][0]["cells"].as_array().unwrap().len(), columns, "{}", resource.plural);
        }
    }

    #[test]
    fn the_row_of_a_bound_claim_is_as_upstream_prints_it() {
        let object = json!({
            "metadata": {"name": "c", "creationTimestamp": "2025-12-31T23:00:00Z"},
            "spec": {"volumeName": "v", "storageClassName": "gold", "volumeMode": "Filesystem"},
            "status": {
                "phase": "Bound",
                "capacity": {"storage": "2Gi"},
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            },
        });
        let cells = claim(&object, &since("2025-12-31T23:00:00Z", &Clock::default()));
        assert_eq!(
            cells,
            json!(["c", "Bound", "v", "2Gi", "RWO,RWX", "gold", "<unset>", "60m", "Filesystem"])
        );
    }
}
