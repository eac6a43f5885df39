//! Volume sources: a volume has exactly one, and each source has rules of its own.

mod retired;

use serde_json::Value;

use super::{in_range, names, required, required_name};
use crate::field::FieldErrors;
use crate::object::{items, text};

/// A volume source, as a field of a volume's spec.
pub(super) struct Source {
    pub(super) name: &'static str,
    /// Whether its plugin takes mount options from the annotation.
    pub(super) mountable: bool,
    /// The texts that it must have.
    required: &'static [&'static str],
}

const fn source(name: &'static str, required: &'static [&'static str]) -> Source {
    Source { name, mountable: false, required }
}

const fn mountable(name: &'static str, required: &'static [&'static str]) -> Source {
    Source { name, mountable: true, required }
}

/// All sources in upstream's order of checking.
pub(super) const SOURCES: [Source; 22] = [
    source("hostPath", &[]),
    mountable("gcePersistentDisk", &["pdName"]),
    mountable("awsElasticBlockStore", &["volumeID"]),
    mountable("glusterfs", &["endpoints", "path"]),
    source("flocker", &[]),
    mountable("nfs", &[]),
    mountable("rbd", &["image"]),
    mountable("quobyte", &[]),
    mountable("cephfs", &[]),
    mountable("iscsi", &[]),
    mountable("cinder", &["volumeID"]),
    source("fc", &[]),
    source("flexVolume", &["driver"]),
    mountable("azureFile", &["secretName", "shareName"]),
    mountable("vsphereVolume", &["volumePath"]),
    mountable("photonPersistentDisk", &["pdID"]),
    source("portworxVolume", &["volumeID"]),
    mountable("azureDisk", &["diskName", "diskURI"]),
    source("scaleIO", &["gateway", "system", "volumeName"]),
    source("local", &[]),
    source("storageos", &[]),
    source("csi", &[]),
];

const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Checks the sources of a volume's spec.
pub(super) fn check(errors: &mut FieldErrors, spec: &Value, volume: &str, has_affinity: bool) {
    let mut found = false;
    for Source { name, required: fields, .. } in SOURCES {
        let Some(source) = spec.get(name).filter(|source| source.is_object()) else { continue };
        // Upstream accepts a flexVolume after another source.
        if found && name != "flexVolume" {
            let field = if name == "cephfs" { "cephFS" } else { name };
            errors.forbidden(format!("spec.{field}"), "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        let field = if name == "gcePersistentDisk" { "persistentDisk" } else { name };
        required(errors, source, &format!("spec.{field}"), fields);
        one(errors, name, source, volume);
        if name == "local" && !has_affinity {
            errors.required("spec.nodeAffinity", "Local volume requires node affinity");
        }
    }
    if !found {
        errors.required("spec", "must specify a volume type");
    }
}

fn one(errors: &mut FieldErrors, name: &str, source: &Value, volume: &str) {
    match name {
        "hostPath" | "local" => path(errors, name, source),
        "nfs" => nfs(errors, source),
        "iscsi" => iscsi(errors, source, volume),
        "fc" => fc(errors, source),
        "csi" => csi(errors, source),
        "cephfs" | "rbd" if items(source, "/monitors").is_empty() => {
            errors.required(format!("spec.{name}.monitors"), "");
        }
        _ => retired::check(errors, name, source),
    }
}

fn path(errors: &mut FieldErrors, name: &str, source: &Value) {
    let field = format!("spec.{name}.path");
    let path = text(source, "/path");
    if path.is_empty() {
        errors.required(field, "");
        return;
    }
    if path.split('/').any(|part| part == "..") {
        errors.invalid(field, path, "must not contain '..'");
    }
    errors.one_of(format!("spec.{name}.type"), text(source, "/type"), &HOST_PATH_TYPES);
}

fn nfs(errors: &mut FieldErrors, source: &Value) {
    required(errors, source, "spec.nfs", &["server", "path"]);
    let path = text(source, "/path");
    if !path.starts_with('/') {
        errors.invalid("spec.nfs.path", path, "must be an absolute path");
    }
}

fn iscsi(errors: &mut FieldErrors, source: &Value, volume: &str) {
    required(errors, source, "spec.iscsi", &["targetPortal"]);
    let portal = text(source, "/targetPortal");
    if source.get("initiatorName").is_some() && volume.len() + 1 + portal.len() > 64 {
        let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                   iscsi.initiatorName is specified.";
        errors.invalid("spec.iscsi.targetportal", portal, why);
    }
    required(errors, source, "spec.iscsi", &["iqn"]);
    let iqn = text(source, "/iqn");
    if !iqn.is_empty() && !is_iscsi_name(iqn) {
        errors.invalid("spec.iscsi.iqn", iqn, "must be valid format");
    }
    in_range(errors, source, "spec.iscsi", "lun", 0..=255, "must be between 0 and 255, inclusive");
    let authenticated = source["chapAuthDiscovery"] == true || source["chapAuthSession"] == true;
    match source.get("secretRef") {
        Some(secret) => required(errors, secret, "spec.iscsi.secretRef", &["name"]),
        None if authenticated => errors.required("spec.iscsi.secretRef", ""),
        None => {}
    }
    let initiator = source.get("initiatorName").and_then(Value::as_str);
    if let Some(initiator) = initiator.filter(|name| !is_iscsi_name(name)) {
        errors.invalid("spec.iscsi.initiatorname", initiator, "must be valid format");
    }
}

/// Upstream's regular expressions: `iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`, which may match
/// anywhere in a name that begins with `iqn`; `^eui.[[:alnum:]]{16}$`; `^naa.[[:alnum:]]{32}$`.
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

/// `2001-04.com.example:storage`: a month, a domain registered in that month, and a name.
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

fn fc(errors: &mut FieldErrors, source: &Value) {
    let (targets, ids) = (items(source, "/targetWWNs"), items(source, "/wwids"));
    if targets.is_empty() && ids.is_empty() {
        errors.required("spec.fc.targetWWNs", "must specify either targetWWNs or wwids, but not both");
    }
    if targets.is_empty() {
        return;
    }
    if !ids.is_empty() {
        let why = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid("spec.fc.targetWWNs", targets.to_vec(), why);
    }
    if source["lun"].as_i64().is_none() {
        errors.required("spec.fc.lun", "lun is required if targetWWNs is specified");
    }
    in_range(errors, source, "spec.fc", "lun", 0..=255, "must be between 0 and 255, inclusive");
}

fn csi(errors: &mut FieldErrors, source: &Value) {
    driver_name(errors, text(source, "/driver"), "spec.csi.driver");
    required(errors, source, "spec.csi", &["volumeHandle"]);
    for reference in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let Some(secret) = source.get(reference) else { continue };
        let field = format!("spec.csi.{reference}");
        required_name(errors, secret, &field, "name", names::subdomain);
        required_name(errors, secret, &field, "namespace", names::label);
    }
}

/// `ValidateCSIDriverName`.
pub(super) fn driver_name(errors: &mut FieldErrors, name: &str, field: &str) {
    if name.is_empty() {
        errors.required(field, "");
        return;
    }
    if name.len() > 63 {
        errors.too_long(field, 63);
    }
    errors.check(field, name, |name| names::subdomain(&name.to_lowercase()));
}
