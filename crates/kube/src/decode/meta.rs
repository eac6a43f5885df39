//! `metadata`, as far as decisions need it.

use std::collections::BTreeMap;

use bindery_core::{ClaimKey, Text, Timestamp};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// `volume.beta.kubernetes.io/storage-class`: takes precedence over the field where the key exists.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) name: Text,
    #[serde(default)]
    pub(super) namespace: Option<Text>,
    /// Empty in a manifest that no API server has seen.
    #[serde(default)]
    pub(super) uid: Text,
    #[serde(default, rename = "resourceVersion")]
    pub(super) version: Text,
    #[serde(default)]
    creation_timestamp: Option<String>,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) labels: Option<BTreeMap<Text, Text>>,
    #[serde(default)]
    annotations: Option<BTreeMap<Text, Text>>,
    #[serde(default)]
    pub(super) finalizers: Option<Vec<Text>>,
}

impl Meta {
    pub(super) fn key(&self) -> ClaimKey {
        ClaimKey { namespace: self.namespace.clone().unwrap_or_else(|| "".into()), name: self.name.clone() }
    }

    pub(super) fn deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// `creationTimestamp`; zero where it is missing or null, as in a manifest.
    pub(super) fn created(&self) -> Result<Timestamp, String> {
        let Some(text) = &self.creation_timestamp else { return Ok(0) };
        let time: jiff::Timestamp = text
            .parse()
            .map_err(|error| format!("metadata.creationTimestamp: {text:?} is no RFC 3339 time: {error}"))?;
        Ok(time.as_second())
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&Text> {
        self.annotations.as_ref()?.get(key)
    }

    pub(super) fn is_annotated(&self, key: &str) -> bool {
        self.annotation(key).is_some()
    }

    /// The class: the beta annotation where its key exists, else the field.
    pub(super) fn class(&self, field: Option<Text>) -> Option<Text> {
        self.annotation(BETA_CLASS).cloned().or(field)
    }
}
