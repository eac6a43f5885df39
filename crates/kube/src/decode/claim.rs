//! PersistentVolumeClaim (core/v1).

use std::collections::BTreeMap;

use bindery_core::{Claim, ClaimAnnotations, ClaimPhase, ClaimStatus, Quantity, Text, Uid, Version};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::meta::Meta;
use super::selector::{self, LabelSelector};
use super::{Amount, Resources, access_modes, quantity, volume_mode};

#[derive(Deserialize)]
pub(super) struct Wire {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    resources: Option<Requirements>,
    access_modes: Option<Vec<String>>,
    storage_class_name: Option<Text>,
    volume_mode: Option<String>,
    volume_attributes_class_name: Option<Text>,
    selector: Option<LabelSelector>,
    volume_name: Option<Text>,
    data_source: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Requirements {
    #[serde(default)]
    requests: Option<Resources>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<String>,
    access_modes: Option<Vec<String>>,
    capacity: Option<BTreeMap<String, Amount>>,
    current_volume_attributes_class_name: Option<Text>,
}

pub(super) fn decode(wire: Wire) -> Result<Claim, String> {
    let Wire { metadata: meta, spec, status } = wire;
    let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
    Ok(Claim {
        key: meta.key(),
        uid: Uid(meta.uid.clone()),
        version: Version(meta.version.clone()),
        deleting: meta.deleting(),
        annotations: annotations(&meta),
        request: quantity(requests.storage.as_ref(), "spec.resources.requests.storage")?
            .unwrap_or(Quantity::ZERO),
        access_modes: access_modes(spec.access_modes, "spec.accessModes")?,
        class: meta.class(spec.storage_class_name),
        mode: volume_mode(spec.volume_mode.as_deref())?,
        attributes_class: spec.volume_attributes_class_name,
        selector: spec.selector.map(selector::decode),
        volume_name: spec.volume_name.filter(|name| !name.is_empty()),
        data_source: spec.data_source.is_some(),
        status: decode_status(status.unwrap_or_default())?,
    })
}

fn annotations(meta: &Meta) -> ClaimAnnotations {
    ClaimAnnotations {
        bind_completed: meta.is_annotated(crate::keys::BIND_COMPLETED),
        bound_by_controller: meta.is_annotated(crate::keys::BOUND_BY_CONTROLLER),
        selected_node: meta.annotation(crate::keys::SELECTED_NODE).cloned(),
        storage_provisioner: meta.annotation(crate::keys::STORAGE_PROVISIONER).cloned(),
        beta_storage_provisioner: meta.annotation(crate::keys::BETA_STORAGE_PROVISIONER).cloned(),
        migrated_to: meta.annotation(crate::keys::MIGRATED_TO).cloned(),
    }
}

fn decode_status(status: Status) -> Result<ClaimStatus, String> {
    let storage = status.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
    Ok(ClaimStatus {
        phase: phase(status.phase.as_deref())?,
        access_modes: access_modes(status.access_modes, "status.accessModes")?,
        capacity: quantity(storage, "status.capacity.storage")?,
        has_capacity: status.capacity.is_some_and(|capacity| !capacity.is_empty()),
        attributes_class: status.current_volume_attributes_class_name,
    })
}

fn phase(name: Option<&str>) -> Result<ClaimPhase, String> {
    const PHASES: [ClaimPhase; 4] =
        [ClaimPhase::Unset, ClaimPhase::Pending, ClaimPhase::Bound, ClaimPhase::Lost];
    let name = name.unwrap_or_default();
    PHASES.into_iter().find(|phase| phase.name() == name).ok_or_else(|| {
        format!("status.phase: {name:?} is not a phase of a claim; one of Pending, Bound, Lost")
    })
}
