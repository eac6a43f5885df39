//! Sources whose drivers have left Kubernetes; what they need is checked as ever.

use serde_json::Value;

use crate::object::text;
use crate::status::FieldError;
use crate::validate::{each, names, required};

const REGISTRY: &str = "must be a host:port pair or multiple pairs separated by commas";
const CACHING_MODES: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
const DISK_KINDS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
const MANAGED_DISK: &str =
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
const BLOB_DISK: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";

/// What a source needs beyond the texts that it must have.
pub(super) fn check(errors: &mut Vec<FieldError>, name: &str, source: &Value) {
    match name {
        "flocker" => flocker(errors, source),
        "quobyte" => quobyte(errors, source),
        "cinder" => secret(errors, source, "cinder"),
        "flexVolume" => flex_volume(errors, source),
        "azureFile" => azure_file(errors, source),
        "azureDisk" => azure_disk(errors, source),
        "glusterfs" => glusterfs(errors, source),
        "storageos" => storageos(errors, source),
        _ => {}
    }
}

fn azure_file(errors: &mut Vec<FieldError>, source: &Value) {
    if source.get("secretNamespace").and_then(Value::as_str) == Some("") {
        errors.push(FieldError::required("spec.azureFile.secretNamespace", ""));
    }
}

fn secret(errors: &mut Vec<FieldError>, source: &Value, name: &str) {
    let Some(secret) = source.get("secretRef") else { return };
    required(errors, secret, "/name", &format!("spec.{name}.secretRef.name"));
    required(errors, secret, "/namespace", &format!("spec.{name}.secretRef.namespace"));
}

fn flocker(errors: &mut Vec<FieldError>, source: &Value) {
    let (name, uuid) = (text(source, "/datasetName"), text(source, "/datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        let why = "one of datasetName and datasetUUID is required";
        errors.push(FieldError::required("spec.flocker", why));
    }
    if !name.is_empty() && !uuid.is_empty() {
        let why = "datasetName and datasetUUID can not be specified simultaneously";
        errors.push(FieldError::invalid("spec.flocker", "resource", why));
    }
    if name.contains('/') {
        errors.push(FieldError::invalid("spec.flocker.datasetName", name, "must not contain '/'"));
    }
}

fn quobyte(errors: &mut Vec<FieldError>, source: &Value) {
    const TENANT_MAX: usize = 64;
    let registry = text(source, "/registry");
    if registry.is_empty() {
        errors.push(FieldError::required("spec.quobyte.registry", REGISTRY));
    } else if text(source, "/tenant").len() > TENANT_MAX {
        let why = "must be a UUID and may not exceed a length of 64 characters";
        errors.push(FieldError::required("spec.quobyte.tenant", why));
    } else {
        // Each pair that is none is told by itself, in the same words.
        let wrong = registry.split(',').filter(|pair| !is_host_and_port(pair));
        errors.extend(wrong.map(|_| FieldError::invalid("spec.quobyte.registry", registry, REGISTRY)));
    }
    required(errors, source, "/volume", "spec.quobyte.volume");
}

/// Whether Go's `net.SplitHostPort` splits it: `host:port` or `[host]:port`, either of which may be empty.
fn is_host_and_port(pair: &str) -> bool {
    match pair.strip_prefix('[') {
        Some(rest) => rest
            .split_once(']')
            .and_then(|(host, port)| Some((host, port.strip_prefix(':')?)))
            .is_some_and(|(host, port)| !host.contains('[') && !port.contains([':', '[', ']'])),
        None => pair.split_once(':').is_some_and(|(host, port)| {
            !port.contains(':') && ![host, port].iter().any(|part| part.contains(['[', ']']))
        }),
    }
}

fn flex_volume(errors: &mut Vec<FieldError>, source: &Value) {
    for key in source.get("options").and_then(Value::as_object).into_iter().flat_map(serde_json::Map::keys) {
        let domain = format!(".{}", key.split('/').next().unwrap_or(key).to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            let why = "kubernetes.io and k8s.io namespaces are reserved";
            errors.push(FieldError::invalid(format!("spec.flexVolume.options[{key}]"), key.as_str(), why));
        }
    }
}

fn azure_disk(errors: &mut Vec<FieldError>, source: &Value) {
    let mode = source.get("cachingMode").and_then(Value::as_str);
    if let Some(mode) = mode.filter(|mode| !CACHING_MODES.contains(mode)) {
        errors.push(FieldError::not_supported("spec.azureDisk.cachingMode", mode, &CACHING_MODES));
    }
    let Some(kind) = source.get("kind").and_then(Value::as_str) else { return };
    if !DISK_KINDS.contains(&kind) {
        errors.push(FieldError::not_supported("spec.azureDisk.kind", kind, &DISK_KINDS));
    }
    let (form, start) =
        if kind == "Managed" { (MANAGED_DISK, "/subscriptions/") } else { (BLOB_DISK, "https://") };
    let uri = text(source, "/diskURI");
    if !uri.starts_with(start) {
        errors.push(FieldError::not_supported("spec.azureDisk.diskURI", uri, &[form]));
    }
}

fn glusterfs(errors: &mut Vec<FieldError>, source: &Value) {
    const FIELD: &str = "spec.glusterfs.endpointsNamespace";
    match source.get("endpointsNamespace").and_then(Value::as_str) {
        None => {}
        Some("") => {
            let why = "if the endpointnamespace is set, it must be a valid namespace name";
            errors.push(FieldError::invalid(FIELD, "", why));
        }
        Some(namespace) => errors.extend(each(FIELD, namespace, names::label(namespace))),
    }
}

fn storageos(errors: &mut Vec<FieldError>, source: &Value) {
    let (name, namespace) = (text(source, "/volumeName"), text(source, "/volumeNamespace"));
    if name.is_empty() {
        errors.push(FieldError::required("spec.storageos.volumeName", ""));
    } else {
        errors.extend(each("spec.storageos.volumeName", name, names::label(name)));
    }
    if !namespace.is_empty() {
        errors.extend(each("spec.storageos.volumeNamespace", namespace, names::label(namespace)));
    }
    secret(errors, source, "storageos");
}
