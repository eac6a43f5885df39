//! PersistentVolumeClaim (core/v1).

use std::collections::BTreeMap;

use bindery_core::steer::{self, Choice};
use bindery_core::{
    Claim, ClaimAnnotations, ClaimFact, ClaimPhase, ClaimStatus, Declared, Quantity, Text, Uid, Version,
};
use serde::Deserialize;

use super::fields::{Amount, Presence, nullable};
use super::meta::Meta;
use super::selector::{self, LabelSelector};
use super::{access_modes, facts, named, quantity, volume_mode};

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
pub(super) struct PersistentVolumeClaim {
    #[prost(message, required, tag = "1")]
    metadata: Meta,
    #[serde(default)]
    #[prost(message, required, tag = "2")]
    spec: Spec,
    #[serde(default)]
    #[prost(message, optional, tag = "3")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(deserialize_with = "nullable")]
    #[prost(string, repeated, tag = "1")]
    access_modes: Vec<String>,
    #[prost(message, optional, tag = "2")]
    resources: Option<Requirements>,
    #[prost(string, optional, tag = "3")]
    volume_name: Option<String>,
    #[prost(message, optional, tag = "4")]
    selector: Option<LabelSelector>,
    #[prost(string, optional, tag = "5")]
    storage_class_name: Option<String>,
    #[prost(string, optional, tag = "6")]
    volume_mode: Option<String>,
    #[prost(message, optional, tag = "7")]
    data_source: Option<Presence>,
    #[prost(string, optional, tag = "9")]
    volume_attributes_class_name: Option<String>,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
struct Requirements {
    #[serde(default, deserialize_with = "nullable")]
    #[prost(btree_map = "string, message", tag = "2")]
    requests: BTreeMap<String, Amount>,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[prost(string, optional, tag = "1")]
    phase: Option<String>,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, repeated, tag = "2")]
    access_modes: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    #[prost(btree_map = "string, message", tag = "3")]
    capacity: BTreeMap<String, Amount>,
    #[prost(string, optional, tag = "8")]
    current_volume_attributes_class_name: Option<String>,
}

pub(super) fn decode(claim: PersistentVolumeClaim, declared: &Declared) -> Result<Claim, String> {
    let PersistentVolumeClaim { metadata: meta, spec, status } = claim;
    let requests = spec.resources.unwrap_or_default().requests;
    let key = meta.key();
    let mut selector = spec.selector.map(selector::decode).transpose()?;
    let steered = steer::take_steering(&key, &mut selector);
    Ok(Claim {
        key,
        uid: Uid(meta.uid.as_str().into()),
        version: Version(meta.version.as_str().into()),
        deleting: meta.deleting(),
        annotations: annotations(&meta),
        request: quantity(&requests, "spec.resources.requests")?.unwrap_or(Quantity::ZERO),
        access_modes: access_modes(&spec.access_modes, "spec.accessModes")?,
        class: meta.class(spec.storage_class_name),
        mode: volume_mode(spec.volume_mode.as_deref())?,
        attributes_class: spec.volume_attributes_class_name.map(Text::from),
        selector,
        steered,
        choice: meta.annotation(steer::CHOICE).and_then(|text| Choice::parse(&text)).map(Box::new),
        volume_name: spec.volume_name.filter(|name| !name.is_empty()).map(Text::from),
        data_source: spec.data_source.is_some(),
        status: decode_status(status.unwrap_or_default())?,
        facts: facts(&declared.claims, |fact| fact_of(fact, &meta)),
    })
}

/// A declared fact that no field of [`Claim`] has.
fn fact_of(fact: &ClaimFact, meta: &Meta) -> Option<Text> {
    match fact {
        ClaimFact::Label(key) => meta.label(key),
        ClaimFact::Annotation(key) => meta.annotation(key),
        ClaimFact::OwnerName => meta.controller(),
        ClaimFact::OwnerOrdinal => {
            let (_, ordinal) = meta.name.rsplit_once('-')?;
            let is_number = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| ordinal.into())
        }
        ClaimFact::Namespace
        | ClaimFact::Name
        | ClaimFact::NamespaceLabel(_)
        | ClaimFact::ClassParameter(_) => None,
    }
}

fn annotations(meta: &Meta) -> ClaimAnnotations {
    ClaimAnnotations {
        bind_completed: meta.is_annotated(crate::keys::BIND_COMPLETED),
        bound_by_controller: meta.is_annotated(crate::keys::BOUND_BY_CONTROLLER),
        selected_node: meta.annotation(crate::keys::SELECTED_NODE),
        storage_provisioner: meta.annotation(crate::keys::STORAGE_PROVISIONER),
        beta_storage_provisioner: meta.annotation(crate::keys::BETA_STORAGE_PROVISIONER),
        migrated_to: meta.annotation(crate::keys::MIGRATED_TO),
    }
}

fn decode_status(status: Status) -> Result<ClaimStatus, String> {
    Ok(ClaimStatus {
        phase: phase(status.phase.as_deref())?,
        access_modes: access_modes(&status.access_modes, "status.accessModes")?,
        capacity: quantity(&status.capacity, "status.capacity")?,
        has_capacity: !status.capacity.is_empty(),
        attributes_class: status.current_volume_attributes_class_name.map(Text::from),
    })
}

fn phase(name: Option<&str>) -> Result<ClaimPhase, String> {
    let name = name.unwrap_or_default();
    named(&ClaimPhase::ALL, ClaimPhase::name, name, ("status.phase", "a phase of a claim"))
}
