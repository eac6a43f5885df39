//! The parts of `metadata` that decisions need.

use std::collections::BTreeMap;
use std::mem;

use bindery_core::{ClaimKey, Text, Timestamp};
use serde::Deserialize;

use super::fields::{Presence, Time, nullable};

/// `volume.beta.kubernetes.io/storage-class`: takes precedence over the field if the key exists.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[serde(default, deserialize_with = "nullable")]
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
    /// Empty in a manifest, which no API server has seen.
    #[serde(default)]
    #[prost(string, tag = "5")]
    pub(super) uid: String,
    #[serde(default, rename = "resourceVersion")]
    #[prost(string, tag = "6")]
    pub(super) version: String,
    #[serde(default)]
    #[prost(message, optional, tag = "8")]
    creation_timestamp: Option<Time>,
    #[serde(default)]
    #[prost(message, optional, tag = "9")]
    deletion_timestamp: Option<Presence>,
    #[serde(default, deserialize_with = "nullable")]
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "nullable")]
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "13")]
    owner_references: Vec<OwnerReference>,
    #[serde(default, deserialize_with = "nullable")]
    #[prost(string, repeated, tag = "14")]
    finalizers: Vec<String>,
}

/// What identifies an object. It can be read where another field cannot, such as an annotation that is not
/// UTF-8: Protocol Buffers let a client store one.
#[derive(Clone, PartialEq, Deserialize, prost::Message)]
pub(super) struct Identity {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[serde(default, deserialize_with = "nullable")]
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
    #[serde(default)]
    #[prost(string, tag = "5")]
    pub(super) uid: String,
    #[serde(default, rename = "resourceVersion")]
    #[prost(string, tag = "6")]
    pub(super) version: String,
}

/// The name and the labels of an object. An API server accepts only ASCII in both.
#[derive(Clone, PartialEq, Deserialize, prost::Message)]
pub(super) struct Labelled {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[serde(default, deserialize_with = "nullable")]
    #[prost(btree_map = "string, string", tag = "11")]
    pub(super) labels: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
struct OwnerReference {
    #[serde(default)]
    #[prost(string, tag = "3")]
    name: String,
    #[serde(default)]
    #[prost(bool, optional, tag = "6")]
    controller: Option<bool>,
}

impl Identity {
    pub(super) fn key(&self) -> ClaimKey {
        ClaimKey::new(self.namespace.as_str(), self.name.as_str())
    }
}

impl Meta {
    pub(super) fn key(&self) -> ClaimKey {
        ClaimKey::new(self.namespace.as_str(), self.name.as_str())
    }

    pub(super) fn deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// `creationTimestamp`; zero if it is missing, as in a manifest.
    pub(super) fn created(&self) -> Timestamp {
        self.creation_timestamp.as_ref().map_or(0, |time| time.seconds)
    }

    /// Takes the labels, so that they are not kept twice.
    pub(super) fn take_labels(&mut self) -> BTreeMap<Text, Text> {
        let labels = mem::take(&mut self.labels).into_iter();
        labels.map(|(key, value)| (key.into(), value.into())).collect()
    }

    /// Takes the finalizers.
    pub(super) fn take_finalizers(&mut self) -> Vec<Text> {
        mem::take(&mut self.finalizers).into_iter().map(Text::from).collect()
    }

    pub(super) fn annotation(&self, key: &str) -> Option<Text> {
        self.annotations.get(key).map(|value| value.as_str().into())
    }

    pub(super) fn label(&self, key: &str) -> Option<Text> {
        self.labels.get(key).map(|value| value.as_str().into())
    }

    /// The name of the object that controls this one.
    pub(super) fn controller(&self) -> Option<Text> {
        let controller = self.owner_references.iter().find(|owner| owner.controller == Some(true));
        controller.map(|owner| owner.name.as_str().into())
    }

    pub(super) fn is_annotated(&self, key: &str) -> bool {
        self.annotations.contains_key(key)
    }

    /// The class: the beta annotation if its key exists, else the field.
    pub(super) fn class(&self, field: Option<String>) -> Option<Text> {
        self.annotation(BETA_CLASS).or_else(|| field.map(Text::from))
    }
}
