//! Sources whose drivers were removed from Kubernetes. The API server still checks them.

use serde_json::Value;

use crate::field::FieldErrors;
use crate::object::text;
use crate::validate::{in_range, names, optional_name, required, required_name};

const REGISTRY: &str = "must be a host:port pair or multiple pairs separated by commas";
const CACHING_MODES: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
const DISK_KINDS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
const MANAGED_DISK: &str =
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
const BLOB_DISK: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";

/// The rules of a source beyond its required texts.
pub(super) fn check(errors: &mut FieldErrors, name: &str, source: &Value) {
    match name {
        "gcePersistentDisk" => partition(errors, source, "spec.persistentDisk"),
        "awsElasticBlockStore" => partition(errors, source, "spec.awsElasticBlockStore"),
        "flocker" => flocker(errors, source),
        "quobyte" => quobyte(errors, source),
        "cinder" => secret(errors, source, "cinder"),
        "flexVolume" => flex_volume(errors, source),
        "azureFile" if source["secretNamespace"] == "" => {
            errors.required("spec.azureFile.secretNamespace", "");
        }
        "azureDisk" => azure_disk(errors, source),
        "glusterfs" => glusterfs(errors, source),
        "storageos" => storageos(errors, source),
        _ => {}
    }
}

fn partition(errors: &mut FieldErrors, source: &Value, at: &str) {
    in_range(errors, source, at, "partition", 0..=255, "must be between 1 and 255, inclusive");
}

fn secret(errors: &mut FieldErrors, source: &Value, name: &str) {
    if let Some(secret) = source.get("secretRef") {
        required(errors, secret, &format!("spec.{name}.secretRef"), &["name", "namespace"]);
    }
}

fn flocker(errors: &mut FieldErrors, source: &Value) {
    let (name, uuid) = (text(source, "/datasetName"), text(source, "/datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        errors.required("spec.flocker", "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        let why = "datasetName and datasetUUID can not be specified simultaneously";
        errors.invalid("spec.flocker", "resource", why);
    }
    if name.contains('/') {
        errors.invalid("spec.flocker.datasetName", name, "must not contain '/'");
    }
}

fn quobyte(errors: &mut FieldErrors, source: &Value) {
    const TENANT_MAX: usize = 64;
    let registry = text(source, "/registry");
    if registry.is_empty() {
        errors.required("spec.quobyte.registry", REGISTRY);
    } else if text(source, "/tenant").len() > TENANT_MAX {
        let why = "must be a UUID and may not exceed a length of 64 characters";
        errors.required("spec.quobyte.tenant", why);
    } else {
        // Each malformed pair adds the same error.
        for _ in registry.split(',').filter(|pair| !is_host_and_port(pair)) {
            errors.invalid("spec.quobyte.registry", registry, REGISTRY);
        }
    }
    required(errors, source, "spec.quobyte", &["volume"]);
}

/// Whether Go's `net.SplitHostPort` accepts a text: `host:port` or `[host]:port`, with either part empty.
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

fn flex_volume(errors: &mut FieldErrors, source: &Value) {
    for (key, _) in source.get("options").and_then(Value::as_object).into_iter().flatten() {
        let domain = format!(".{}", key.split('/').next().unwrap_or(key).to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            let why = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid(format!("spec.flexVolume.options[{key}]"), key.as_str(), why);
        }
    }
}

fn azure_disk(errors: &mut FieldErrors, source: &Value) {
    if let Some(mode) = source.get("cachingMode").and_then(Value::as_str) {
        errors.one_of("spec.azureDisk.cachingMode", mode, &CACHING_MODES);
    }
    let Some(kind) = source.get("kind").and_then(Value::as_str) else { return };
    errors.one_of("spec.azureDisk.kind", kind, &DISK_KINDS);
    let (form, start) =
        if kind == "Managed" { (MANAGED_DISK, "/subscriptions/") } else { (BLOB_DISK, "https://") };
    let uri = text(source, "/diskURI");
    if !uri.starts_with(start) {
        errors.not_supported("spec.azureDisk.diskURI", uri, &[form]);
    }
}

fn glusterfs(errors: &mut FieldErrors, source: &Value) {
    let at = "spec.glusterfs";
    if source["endpointsNamespace"] == "" {
        let why = "if the endpointnamespace is set, it must be a valid namespace name";
        errors.invalid(format!("{at}.endpointsNamespace"), "", why);
    }
    optional_name(errors, source, at, "endpointsNamespace", names::label);
}

fn storageos(errors: &mut FieldErrors, source: &Value) {
    required_name(errors, source, "spec.storageos", "volumeName", names::label);
    optional_name(errors, source, "spec.storageos", "volumeNamespace", names::label);
    secret(errors, source, "storageos");
}
