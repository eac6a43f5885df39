//! Volume sources: exactly one, and what each needs.

mod retired;

use serde_json::Value;

use super::{each, names};
use crate::object::{items, text};
use crate::status::FieldError;

/// The fields of a volume's spec that are sources, in upstream's order of checking.
pub(super) const NAMES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// Texts that a source must have: source, the field as messages name the source, the fields.
const REQUIRED: [(&str, &str, &[&str]); 12] = [
    ("gcePersistentDisk", "persistentDisk", &["pdName"]),
    ("awsElasticBlockStore", "awsElasticBlockStore", &["volumeID"]),
    ("glusterfs", "glusterfs", &["endpoints", "path"]),
    ("rbd", "rbd", &["image"]),
    ("cinder", "cinder", &["volumeID"]),
    ("flexVolume", "flexVolume", &["driver"]),
    ("azureFile", "azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", "vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", "photonPersistentDisk", &["pdID"]),
    ("portworxVolume", "portworxVolume", &["volumeID"]),
    ("azureDisk", "azureDisk", &["diskName", "diskURI"]),
    ("scaleIO", "scaleIO", &["gateway", "system", "volumeName"]),
];

const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Checks the sources of a volume's spec.
pub(super) fn check(errors: &mut Vec<FieldError>, spec: &Value, volume: &str, has_affinity: bool) {
    let mut found = false;
    for name in NAMES {
        let Some(source) = spec.get(name).filter(|source| source.is_object()) else { continue };
        // Upstream lets a flexVolume follow another source; whoever reads that does not rely on it.
        if found && name != "flexVolume" {
            let field = if name == "cephfs" { "cephFS" } else { name };
            errors.push(FieldError::forbidden(
                format!("spec.{field}"),
                "may not specify more than 1 volume type",
            ));
            continue;
        }
        found = true;
        one(errors, name, source, volume);
        if name == "local" && !has_affinity {
            let why = "Local volume requires node affinity";
            errors.push(FieldError::required("spec.nodeAffinity", why));
        }
    }
    if !found {
        errors.push(FieldError::required("spec", "must specify a volume type"));
    }
}

fn one(errors: &mut Vec<FieldError>, name: &str, source: &Value, volume: &str) {
    if let Some((_, field, parts)) = REQUIRED.iter().find(|(source, ..)| *source == name) {
        for part in *parts {
            super::required(errors, source, &format!("/{part}"), &format!("spec.{field}.{part}"));
        }
    }
    match name {
        "hostPath" | "local" => path(errors, name, source),
        "nfs" => nfs(errors, source),
        "iscsi" => iscsi(errors, source, volume),
        "fc" => fc(errors, source),
        "csi" => csi(errors, source),
        "flocker" | "quobyte" | "cinder" | "flexVolume" | "azureFile" | "azureDisk" | "glusterfs"
        | "storageos" => {
            retired::check(errors, name, source);
        }
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let field = if name == "gcePersistentDisk" { "persistentDisk" } else { name };
            if let Some(partition) = source["partition"].as_i64().filter(|number| !(0..=255).contains(number))
            {
                let why = "must be between 1 and 255, inclusive";
                errors.push(FieldError::invalid(format!("spec.{field}.partition"), partition, why));
            }
        }
        "cephfs" | "rbd" if items(source, "/monitors").is_empty() => {
            errors.push(FieldError::required(format!("spec.{name}.monitors"), ""));
        }
        _ => {}
    }
}

fn path(errors: &mut Vec<FieldError>, name: &str, source: &Value) {
    let field = format!("spec.{name}.path");
    let path = text(source, "/path");
    if path.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    if path.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(field, path, "must not contain '..'"));
    }
    if let Some(kind) =
        source.get("type").and_then(Value::as_str).filter(|kind| !HOST_PATH_TYPES.contains(kind))
    {
        errors.push(FieldError::not_supported(format!("spec.{name}.type"), kind, &HOST_PATH_TYPES));
    }
}

fn nfs(errors: &mut Vec<FieldError>, source: &Value) {
    super::required(errors, source, "/server", "spec.nfs.server");
    super::required(errors, source, "/path", "spec.nfs.path");
    let path = text(source, "/path");
    if !path.starts_with('/') {
        errors.push(FieldError::invalid("spec.nfs.path", path, "must be an absolute path"));
    }
}

fn iscsi(errors: &mut Vec<FieldError>, source: &Value, volume: &str) {
    super::required(errors, source, "/targetPortal", "spec.iscsi.targetPortal");
    let portal = text(source, "/targetPortal");
    if source.get("initiatorName").is_some() && volume.len() + 1 + portal.len() > 64 {
        let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                   iscsi.initiatorName is specified.";
        errors.push(FieldError::invalid("spec.iscsi.targetportal", portal, why));
    }
    let iqn = text(source, "/iqn");
    if iqn.is_empty() {
        errors.push(FieldError::required("spec.iscsi.iqn", ""));
    } else if !is_iscsi_name(iqn) {
        errors.push(FieldError::invalid("spec.iscsi.iqn", iqn, "must be valid format"));
    }
    if let Some(lun) = source["lun"].as_i64().filter(|lun| !(0..=255).contains(lun)) {
        errors.push(FieldError::invalid("spec.iscsi.lun", lun, "must be between 0 and 255, inclusive"));
    }
    let authenticated = source["chapAuthDiscovery"] == true || source["chapAuthSession"] == true;
    if authenticated && source.get("secretRef").is_none() {
        errors.push(FieldError::required("spec.iscsi.secretRef", ""));
    }
    if let Some(secret) = source.get("secretRef") {
        super::required(errors, secret, "/name", "spec.iscsi.secretRef.name");
    }
    if let Some(initiator) =
        source.get("initiatorName").and_then(Value::as_str).filter(|name| !is_iscsi_name(name))
    {
        errors.push(FieldError::invalid("spec.iscsi.initiatorname", initiator, "must be valid format"));
    }
}

/// The regular expressions of upstream: `iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`, which may begin
/// anywhere in a name that begins with `iqn`; `^eui.[[:alnum:]]{16}$` and `^naa.[[:alnum:]]{32}$`.
fn is_iscsi_name(name: &str) -> bool {
    let number = |prefix: &str, length: usize| {
        name.strip_prefix(prefix).is_some_and(|rest| {
            let mut characters = rest.chars();
            characters.next().is_some_and(|any| any != '\n')
                && characters.as_str().len() == length
                && characters.all(|character| character.is_ascii_alphanumeric())
        })
    };
    if name.starts_with("iqn") {
        return name.match_indices("iqn.").any(|(at, prefix)| is_qualified_name(&name[at + prefix.len()..]));
    }
    number("eui", 16) || number("naa", 32)
}

/// `2001-04.com.example:storage`: a month, the domain that someone had then, and a name in it.
fn is_qualified_name(text: &str) -> bool {
    let Some((date, rest)) = text.split_once('.') else { return false };
    let Some((domain, name)) = rest.split_once(':') else { return false };
    let is_date = date.len() == 7
        && date
            .bytes()
            .enumerate()
            .all(|(at, byte)| if at == 4 { byte == b'-' } else { byte.is_ascii_digit() });
    let is_domain = !domain.is_empty()
        && domain.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    let is_name =
        !name.is_empty() && !name.contains([',', ';', '*', '&', '$', '|', ' ', '\t', '\n', '\x0c', '\r']);
    is_date && is_domain && is_name
}

fn fc(errors: &mut Vec<FieldError>, source: &Value) {
    let (targets, ids) = (items(source, "/targetWWNs"), items(source, "/wwids"));
    if targets.is_empty() && ids.is_empty() {
        let why = "must specify either targetWWNs or wwids, but not both";
        errors.push(FieldError::required("spec.fc.targetWWNs", why));
    }
    if !targets.is_empty() && !ids.is_empty() {
        let why = "targetWWNs and wwids can not be specified simultaneously";
        errors.push(FieldError::invalid("spec.fc.targetWWNs", targets.to_vec(), why));
    }
    match source.get("lun").and_then(Value::as_i64) {
        None if !targets.is_empty() => {
            errors.push(FieldError::required("spec.fc.lun", "lun is required if targetWWNs is specified"));
        }
        Some(lun) if !targets.is_empty() && !(0..=255).contains(&lun) => {
            errors.push(FieldError::invalid("spec.fc.lun", lun, "must be between 0 and 255, inclusive"));
        }
        _ => {}
    }
}

fn csi(errors: &mut Vec<FieldError>, source: &Value) {
    driver_name(errors, text(source, "/driver"), "spec.csi.driver");
    super::required(errors, source, "/volumeHandle", "spec.csi.volumeHandle");
    for reference in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let Some(secret) = source.get(reference) else { continue };
        let field = format!("spec.csi.{reference}");
        let (name, namespace) = (text(secret, "/name"), text(secret, "/namespace"));
        if name.is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        } else {
            errors.extend(each(&format!("{field}.name"), name, names::subdomain(name)));
        }
        if namespace.is_empty() {
            errors.push(FieldError::required(format!("{field}.namespace"), ""));
        } else {
            errors.extend(each(&format!("{field}.namespace"), namespace, names::label(namespace)));
        }
    }
}

/// `ValidateCSIDriverName`.
pub(super) fn driver_name(errors: &mut Vec<FieldError>, name: &str, field: &str) {
    if name.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    if name.len() > 63 {
        errors.push(FieldError::too_long(field, 63));
    }
    errors.extend(each(field, name, names::subdomain(&name.to_lowercase())));
}
