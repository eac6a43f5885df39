//! Manifests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::Digest;
use crate::error::{Result, invalid};
use crate::media;

/// A descriptor: names bytes by their digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What the bytes are.
    pub media_type: String,
    /// Their digest.
    pub digest: Digest,
    /// How many there are.
    pub size: u64,
    /// What the manifest is, in lists of manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// The descriptor of bytes.
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: Digest::of(bytes),
            size: bytes.len() as u64,
            artifact_type: None,
            annotations: BTreeMap::new(),
        }
    }

    /// The same with an annotation.
    #[must_use]
    pub fn annotated(mut self, key: &str, value: impl Into<String>) -> Self {
        self.annotations.insert(key.to_owned(), value.into());
        self
    }
}

/// A manifest: a configuration and layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// 2.
    pub schema_version: u32,
    /// [`media::MANIFEST`], or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// What the artifact is; without it, the media type of the configuration says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The configuration.
    pub config: Descriptor,
    /// The contents.
    pub layers: Vec<Descriptor>,
    /// The manifest that this one is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A list of manifests: referrers, or the manifests of a layout.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub(crate) schema_version: u32,
    #[serde(default)]
    pub(crate) media_type: Option<String>,
    /// Entries that this version cannot read are kept as they are.
    #[serde(default)]
    pub(crate) manifests: Vec<Value>,
}

impl Default for Index {
    fn default() -> Self {
        Self { schema_version: 2, media_type: Some(media::INDEX.to_owned()), manifests: Vec::new() }
    }
}

impl Index {
    pub(crate) fn parse(bytes: &[u8], what: &str) -> Result<Self> {
        serde_json::from_slice(bytes)
            .or_else(|error| invalid(format!("{what} is no list of manifests: {error}")))
    }

    /// The entries that this version can read.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = Descriptor> {
        self.manifests.iter().filter_map(|entry| serde_json::from_value(entry.clone()).ok())
    }

    /// Adds an entry, in place of one that has its tag, or its digest and no tag. A tag of another repository
    /// is another tag.
    pub(crate) fn add(&mut self, entry: &Descriptor) {
        let is_replaced = |value: &Value| {
            serde_json::from_value::<Descriptor>(value.clone()).is_ok_and(|known| {
                let [tag, image] = [media::REF_NAME, media::IMAGE_NAME].map(|key| known.annotations.get(key));
                match tag {
                    None => known.digest == entry.digest,
                    Some(_) if tag != entry.annotations.get(media::REF_NAME) => false,
                    Some(_) => image.is_none() || image == entry.annotations.get(media::IMAGE_NAME),
                }
            })
        };
        self.manifests.retain(|value| !is_replaced(value));
        self.manifests.push(serde_json::to_value(entry).unwrap_or_default());
    }
}

impl Manifest {
    /// Reads a manifest; `what` names it.
    ///
    /// # Errors
    ///
    /// It is a list of manifests, or no manifest.
    pub fn parse(bytes: &[u8], what: &str) -> Result<Self> {
        let value: Value = match serde_json::from_slice(bytes) {
            Ok(value) => value,
            Err(error) => return invalid(format!("{what} is no manifest: {error}")),
        };
        let media_type = value["mediaType"].as_str();
        if value.get("manifests").is_some() || media_type == Some(media::INDEX) {
            return invalid(format!(
                "{what} is a list of manifests, as for several platforms; name one of them by its digest"
            ));
        }
        if let Some(other) = media_type.filter(|media_type| *media_type != media::MANIFEST) {
            return invalid(format!(
                "{what} has the media type {other:?}; only {:?} is read",
                media::MANIFEST
            ));
        }
        serde_json::from_value(value).or_else(|error| invalid(format!("{what} is no manifest: {error}")))
    }

    /// A manifest of an artifact that stands alone.
    pub(crate) fn new(config: Descriptor, layers: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: Some(media::MANIFEST.to_owned()),
            artifact_type: None,
            config,
            layers,
            subject: None,
            annotations: BTreeMap::new(),
        }
    }

    /// A manifest of an artifact that is about another one.
    pub(crate) fn referrer(artifact_type: &str, layers: Vec<Descriptor>, subject: Descriptor) -> Self {
        Self {
            artifact_type: Some(artifact_type.to_owned()),
            subject: Some(subject),
            ..Self::new(Descriptor::of(media::EMPTY, EMPTY_CONFIG), layers)
        }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// What the artifact is.
    pub fn kind(&self) -> &str {
        self.artifact_type.as_deref().unwrap_or(&self.config.media_type)
    }

    /// The entry of this manifest in lists of referrers.
    pub(crate) fn entry(&self, bytes: &[u8]) -> Descriptor {
        Descriptor {
            artifact_type: Some(self.kind().to_owned()),
            annotations: self.annotations.clone(),
            ..Descriptor::of(media::MANIFEST, bytes)
        }
    }

    /// Its configuration and layers.
    pub fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        std::iter::once(&self.config).chain(&self.layers)
    }
}

/// The configuration of an artifact that needs none.
pub(crate) const EMPTY_CONFIG: &[u8] = b"{}";
