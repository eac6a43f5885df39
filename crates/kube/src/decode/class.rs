//! StorageClass (storage.k8s.io/v1).

use bindery_core::{BindingMode, Class, Text};
use serde::Deserialize;

use super::meta::Meta;

/// Either annotation marks a default class.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wire {
    metadata: Meta,
    #[serde(default)]
    provisioner: Text,
    #[serde(default)]
    volume_binding_mode: Option<String>,
    #[serde(default)]
    mount_options: Option<Vec<String>>,
}

pub(super) fn decode(wire: Wire) -> Result<Class, String> {
    let meta = wire.metadata;
    let marked = |key: &&str| meta.annotation(key).is_some_and(|value| &**value == "true");
    Ok(Class {
        default: DEFAULT_CLASS.iter().any(marked),
        created: meta.created()?,
        provisioner: wire.provisioner,
        binding_mode: binding_mode(wire.volume_binding_mode.as_deref())?,
        mount_options: wire.mount_options.is_some_and(|options| !options.is_empty()),
        name: meta.name,
    })
}

fn binding_mode(name: Option<&str>) -> Result<Option<BindingMode>, String> {
    match name {
        None => Ok(None),
        Some("Immediate") => Ok(Some(BindingMode::Immediate)),
        Some("WaitForFirstConsumer") => Ok(Some(BindingMode::WaitForFirstConsumer)),
        Some(other) => Err(format!(
            "volumeBindingMode: {other:?} is not a binding mode; one of Immediate, WaitForFirstConsumer"
        )),
    }
}
