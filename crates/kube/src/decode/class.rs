//! StorageClass (storage.k8s.io/v1).

use std::collections::BTreeMap;

use bindery_core::{BindingMode, ClaimFact, Class, Declared};
use serde::Deserialize;

use super::facts;
use super::fields::nullable;
use super::meta::Meta;

/// Either annotation marks a default class.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase")]
pub(super) struct StorageClass {
    #[prost(message, required, tag = "1")]
    metadata: Meta,
    #[serde(default)]
    #[prost(string, tag = "2")]
    provisioner: String,
    #[serde(default, deserialize_with = "nullable")]
    #[prost(btree_map = "string, string", tag = "3")]
    parameters: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "nullable")]
    #[prost(string, repeated, tag = "5")]
    mount_options: Vec<String>,
    #[serde(default)]
    #[prost(string, optional, tag = "7")]
    volume_binding_mode: Option<String>,
}

pub(super) fn decode(class: StorageClass, declared: &Declared) -> Result<Class, String> {
    let meta = class.metadata;
    let marked = |key: &&str| meta.annotation(key).as_deref() == Some("true");
    Ok(Class {
        default: DEFAULT_CLASS.iter().any(marked),
        created: meta.created(),
        provisioner: class.provisioner.into(),
        binding_mode: binding_mode(class.volume_binding_mode.as_deref())?,
        mount_options: !class.mount_options.is_empty(),
        parameters: facts(&declared.claims, |fact| match fact {
            ClaimFact::ClassParameter(name) => {
                class.parameters.get(&**name).map(|value| value.as_str().into())
            }
            _ => None,
        }),
        name: meta.name.into(),
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
