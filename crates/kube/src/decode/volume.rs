//! PersistentVolume (core/v1).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use bindery_core::steer::{FENCE, RESERVED_FOR, Reservation};
use bindery_core::{
    ClaimRef, Declared, Quantity, ReclaimPolicy, Text, Uid, Version, Volume, VolumeAnnotations, VolumeFact,
    VolumePhase,
};
use serde::Deserialize;

use super::fields::{Amount, Presence, Time, nullable};
use super::meta::Meta;
use super::{access_modes, facts, named, quantity, volume_mode};
use crate::request::is_name;

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
pub(super) struct PersistentVolume {
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
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    #[prost(string, optional, tag = "1")]
    phase: Option<String>,
    #[serde(default)]
    #[prost(message, optional, tag = "4")]
    last_phase_transition_time: Option<Time>,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(from = "Json")]
struct Spec {
    #[prost(btree_map = "string, message", tag = "1")]
    capacity: BTreeMap<String, Amount>,
    #[prost(message, required, tag = "2")]
    source: Source,
    #[prost(string, repeated, tag = "3")]
    access_modes: Vec<String>,
    #[prost(message, optional, tag = "4")]
    claim_ref: Option<Reference>,
    #[prost(string, optional, tag = "5")]
    persistent_volume_reclaim_policy: Option<String>,
    #[prost(string, optional, tag = "6")]
    storage_class_name: Option<String>,
    #[prost(string, optional, tag = "8")]
    volume_mode: Option<String>,
    #[prost(message, optional, tag = "9")]
    node_affinity: Option<NodeAffinity>,
    #[prost(string, optional, tag = "10")]
    volume_attributes_class_name: Option<String>,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(default)]
struct Reference {
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, optional, tag = "4")]
    uid: Option<String>,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
struct NodeAffinity {
    #[serde(default)]
    #[prost(message, optional, tag = "1")]
    required: Option<NodeSelector>,
}

#[derive(Clone, PartialEq, Eq, Hash, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase", default)]
struct NodeSelector {
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "1")]
    node_selector_terms: Vec<NodeSelectorTerm>,
}

#[derive(Clone, PartialEq, Eq, Hash, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase", default)]
struct NodeSelectorTerm {
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "1")]
    match_expressions: Vec<NodeSelectorRequirement>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "2")]
    match_fields: Vec<NodeSelectorRequirement>,
}

#[derive(Clone, PartialEq, Eq, Hash, Deserialize, prost::Message)]
#[serde(default)]
struct NodeSelectorRequirement {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    operator: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, repeated, tag = "3")]
    values: Vec<String>,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(default)]
struct Csi {
    #[prost(string, tag = "1")]
    driver: String,
}

macro_rules! source {
    ($($source:ident: $content:ty = $name:tt = $tag:tt,)*) => {
        #[derive(Clone, PartialEq, prost::Message)]
        struct Source {
            $(
                #[prost(message, optional, tag = $tag)]
                $source: Option<$content>,
            )*
        }

        /// A [`Spec`] in JSON, where the fields of the source are among the others. serde's `flatten` would
        /// do, but buffers all unknown fields, in many times the memory of the JSON.
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Json {
            #[serde(deserialize_with = "nullable")]
            capacity: BTreeMap<String, Amount>,
            #[serde(deserialize_with = "nullable")]
            access_modes: Vec<String>,
            claim_ref: Option<Reference>,
            persistent_volume_reclaim_policy: Option<String>,
            storage_class_name: Option<String>,
            volume_mode: Option<String>,
            node_affinity: Option<NodeAffinity>,
            volume_attributes_class_name: Option<String>,
            $(
                #[serde(rename = $name)]
                $source: Option<$content>,
            )*
        }

        impl From<Json> for Spec {
            fn from(json: Json) -> Self {
                Self {
                    capacity: json.capacity,
                    source: Source { $($source: json.$source,)* },
                    access_modes: json.access_modes,
                    claim_ref: json.claim_ref,
                    persistent_volume_reclaim_policy: json.persistent_volume_reclaim_policy,
                    storage_class_name: json.storage_class_name,
                    volume_mode: json.volume_mode,
                    node_affinity: json.node_affinity,
                    volume_attributes_class_name: json.volume_attributes_class_name,
                }
            }
        }

        impl Source {
            /// Name of the field with the source.
            fn name(&self) -> &'static str {
                $(if self.$source.is_some() { return $name; })*
                ""
            }
        }
    };
}

// Every PersistentVolumeSource of core/v1. The list is closed: new drivers use `csi`.
source! {
    gce_persistent_disk: Presence = "gcePersistentDisk" = "1",
    aws_elastic_block_store: Presence = "awsElasticBlockStore" = "2",
    host_path: Presence = "hostPath" = "3",
    glusterfs: Presence = "glusterfs" = "4",
    nfs: Presence = "nfs" = "5",
    rbd: Presence = "rbd" = "6",
    iscsi: Csi = "iscsi" = "7",
    cinder: Presence = "cinder" = "8",
    cephfs: Presence = "cephfs" = "9",
    fc: Presence = "fc" = "10",
    flocker: Presence = "flocker" = "11",
    flex_volume: Presence = "flexVolume" = "12",
    azure_file: Presence = "azureFile" = "13",
    vsphere_volume: Presence = "vsphereVolume" = "14",
    quobyte: Presence = "quobyte" = "15",
    azure_disk: Presence = "azureDisk" = "16",
    photon_persistent_disk: Presence = "photonPersistentDisk" = "17",
    portworx_volume: Presence = "portworxVolume" = "18",
    scale_io: Presence = "scaleIO" = "19",
    local: Presence = "local" = "20",
    storageos: Presence = "storageos" = "21",
    csi: Csi = "csi" = "22",
}

pub(super) fn decode(volume: PersistentVolume, declared: &Declared) -> Result<Volume, String> {
    let PersistentVolume { metadata: mut meta, spec, status } = volume;
    let facts = facts(&declared.volumes, |fact| fact_of(fact, &meta, &spec, status.as_ref()));
    Ok(Volume {
        facts,
        uid: Uid(meta.uid.as_str().into()),
        version: Version(meta.version.as_str().into()),
        deleting: meta.deleting(),
        annotations: annotations(&meta),
        capacity: quantity(&spec.capacity, "spec.capacity")?,
        source: spec.source.name().into(),
        access_modes: access_modes(&spec.access_modes, "spec.accessModes")?,
        class: meta.class(spec.storage_class_name).unwrap_or_else(|| "".into()),
        mode: volume_mode(spec.volume_mode.as_deref())?,
        attributes_class: spec.volume_attributes_class_name.map(Text::from),
        claim_ref: spec.claim_ref.map(claim_ref).transpose()?,
        // The API server sets a policy on every volume. An unknown one makes the volume Failed.
        policy: ReclaimPolicy::of_name(spec.persistent_volume_reclaim_policy.as_deref().unwrap_or_default()),
        node_affinity: spec.node_affinity.as_ref().is_some_and(|affinity| affinity.required.is_some()),
        topology: spec.node_affinity.and_then(|affinity| affinity.required).map(|required| {
            let mut hasher = DefaultHasher::new();
            required.hash(&mut hasher);
            hasher.finish()
        }),
        phase: phase(status.and_then(|status| status.phase).as_deref())?,
        labels: meta.take_labels(),
        finalizers: meta.take_finalizers(),
        name: meta.name.into(),
    })
}

/// A declared fact that no field of [`Volume`] has.
fn fact_of(fact: &VolumeFact, meta: &Meta, spec: &Spec, status: Option<&Status>) -> Option<Text> {
    match fact {
        VolumeFact::Annotation(key) => meta.annotation(key),
        VolumeFact::Topology(key) => {
            let terms = &spec.node_affinity.as_ref()?.required.as_ref()?.node_selector_terms;
            let mut values = terms.iter().map(|term| required_value(term, key));
            let first = values.next()??;
            values.all(|value| value == Some(first)).then(|| first.into())
        }
        VolumeFact::Driver => spec.source.csi.as_ref().map(|csi| csi.driver.as_str().into()),
        VolumeFact::PhaseTransition => {
            let time = status?.last_phase_transition_time.as_ref()?;
            Some(time.seconds.to_string().into())
        }
        VolumeFact::Label(_) | VolumeFact::ClassName | VolumeFact::Source | VolumeFact::ReclaimPolicy => None,
    }
}

/// The only value of a node label with which a term can match.
fn required_value<'a>(term: &'a NodeSelectorTerm, key: &str) -> Option<&'a str> {
    let mut expressions = term.match_expressions.iter();
    let needed = expressions.find(|needed| needed.key == key && needed.operator == "In")?;
    match needed.values.as_slice() {
        [value] => Some(value),
        _ => None,
    }
}

/// A reference with a UID leads to a live read of the claim, so its names must be names.
fn claim_ref(reference: Reference) -> Result<ClaimRef, String> {
    let Reference { namespace, name, uid } = reference;
    let uid = uid.filter(|uid| !uid.is_empty()).map(|uid| Uid(uid.into()));
    if uid.is_some() {
        let names = [("namespace", &namespace), ("name", &name)];
        if let Some((field, name)) = names.into_iter().find(|(_, name)| !is_name(name)) {
            return Err(format!(
                "spec.claimRef.{field}: {name:?} is not the name of an object; correct it, or remove \
                 spec.claimRef"
            ));
        }
    }
    Ok(ClaimRef { namespace: namespace.into(), name: name.into(), uid })
}

fn annotations(meta: &Meta) -> VolumeAnnotations {
    VolumeAnnotations {
        bound_by_controller: meta.is_annotated(crate::keys::BOUND_BY_CONTROLLER),
        provisioned_by: meta.annotation(crate::keys::PROVISIONED_BY),
        migrated_to: meta.annotation(crate::keys::MIGRATED_TO),
        pre_resize_capacity: meta
            .annotation(crate::keys::PRE_RESIZE_CAPACITY)
            .and_then(|text| Quantity::parse(&text).ok()),
        reserved_for: meta.annotation(RESERVED_FOR).and_then(|text| Reservation::parse(&text)).map(Box::new),
        fence: meta.annotation(FENCE),
    }
}

fn phase(name: Option<&str>) -> Result<VolumePhase, String> {
    let name = name.unwrap_or_default();
    named(&VolumePhase::ALL, VolumePhase::name, name, ("status.phase", "a phase of a volume"))
}
