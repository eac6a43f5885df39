//! PersistentVolume (core/v1).

use bindery_core::{
    ClaimRef, Quantity, ReclaimPolicy, Text, Uid, Version, Volume, VolumeAnnotations, VolumePhase,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::meta::Meta;
use super::{Resources, access_modes, quantity, volume_mode};

#[derive(Deserialize)]
pub(super) struct Wire {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: Option<String>,
}

#[derive(Deserialize)]
struct Reference {
    #[serde(default)]
    namespace: Text,
    #[serde(default)]
    name: Text,
    #[serde(default)]
    uid: Option<Text>,
}

#[derive(Deserialize)]
struct NodeAffinity {
    #[serde(default)]
    required: Option<IgnoredAny>,
}

macro_rules! spec {
    ($($source:ident = $name:literal,)*) => {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            capacity: Option<Resources>,
            access_modes: Option<Vec<String>>,
            claim_ref: Option<Reference>,
            persistent_volume_reclaim_policy: Option<String>,
            storage_class_name: Option<Text>,
            volume_mode: Option<String>,
            node_affinity: Option<NodeAffinity>,
            volume_attributes_class_name: Option<Text>,
            $(#[serde(rename = $name)] $source: Option<IgnoredAny>,)*
        }

        impl Spec {
            /// Name of the field that holds the source.
            fn source(&self) -> &'static str {
                $(if self.$source.is_some() { return $name; })*
                ""
            }
        }
    };
}

// Every PersistentVolumeSource of core/v1. The list is closed: new drivers are served through `csi`.
spec! {
    csi = "csi",
    aws_elastic_block_store = "awsElasticBlockStore",
    azure_disk = "azureDisk",
    azure_file = "azureFile",
    cephfs = "cephfs",
    cinder = "cinder",
    fc = "fc",
    flex_volume = "flexVolume",
    flocker = "flocker",
    gce_persistent_disk = "gcePersistentDisk",
    glusterfs = "glusterfs",
    host_path = "hostPath",
    iscsi = "iscsi",
    local = "local",
    nfs = "nfs",
    photon_persistent_disk = "photonPersistentDisk",
    portworx_volume = "portworxVolume",
    quobyte = "quobyte",
    rbd = "rbd",
    scale_io = "scaleIO",
    storageos = "storageos",
    vsphere_volume = "vsphereVolume",
}

pub(super) fn decode(wire: Wire) -> Result<Volume, String> {
    let Wire { metadata: meta, spec, status } = wire;
    Ok(Volume {
        uid: Uid(meta.uid.clone()),
        version: Version(meta.version.clone()),
        deleting: meta.deleting(),
        annotations: annotations(&meta),
        capacity: quantity(
            spec.capacity.as_ref().and_then(|capacity| capacity.storage.as_ref()),
            "spec.capacity.storage",
        )?,
        source: spec.source().into(),
        access_modes: access_modes(spec.access_modes, "spec.accessModes")?,
        class: meta.class(spec.storage_class_name).unwrap_or_else(|| "".into()),
        mode: volume_mode(spec.volume_mode.as_deref())?,
        attributes_class: spec.volume_attributes_class_name,
        claim_ref: spec.claim_ref.map(|reference| ClaimRef {
            namespace: reference.namespace,
            name: reference.name,
            uid: reference.uid.filter(|uid| !uid.is_empty()).map(Uid),
        }),
        policy: policy(spec.persistent_volume_reclaim_policy.as_deref()),
        node_affinity: spec.node_affinity.is_some_and(|affinity| affinity.required.is_some()),
        phase: phase(status.and_then(|status| status.phase).as_deref())?,
        labels: meta.labels.unwrap_or_default(),
        finalizers: meta.finalizers.unwrap_or_default(),
        name: meta.name,
    })
}

fn annotations(meta: &Meta) -> VolumeAnnotations {
    VolumeAnnotations {
        bound_by_controller: meta.is_annotated(crate::keys::BOUND_BY_CONTROLLER),
        provisioned_by: meta.annotation(crate::keys::PROVISIONED_BY).cloned(),
        migrated_to: meta.annotation(crate::keys::MIGRATED_TO).cloned(),
        pre_resize_capacity: meta
            .annotation(crate::keys::PRE_RESIZE_CAPACITY)
            .and_then(|text| Quantity::parse(text).ok()),
    }
}

/// The API server sets a policy on every volume; what no version knows makes the volume Failed.
fn policy(name: Option<&str>) -> ReclaimPolicy {
    match name {
        Some("Retain") => ReclaimPolicy::Retain,
        Some("Delete") => ReclaimPolicy::Delete,
        Some("Recycle") => ReclaimPolicy::Recycle,
        _ => ReclaimPolicy::Unknown,
    }
}

fn phase(name: Option<&str>) -> Result<VolumePhase, String> {
    const PHASES: [VolumePhase; 6] = [
        VolumePhase::Unset,
        VolumePhase::Pending,
        VolumePhase::Available,
        VolumePhase::Bound,
        VolumePhase::Released,
        VolumePhase::Failed,
    ];
    let name = name.unwrap_or_default();
    PHASES.into_iter().find(|phase| phase.name() == name).ok_or_else(|| {
        format!("status.phase: {name:?} is not a phase of a volume; one of Pending, Available, Bound, Released, Failed")
    })
}
