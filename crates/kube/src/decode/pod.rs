//! Pod (core/v1): which claims it references, and whether it still runs.

use bindery_core::Text;
use bindery_store::PodRecord;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::meta::Meta;

#[derive(Deserialize)]
pub(super) struct Wire {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Option<String>,
    volumes: Option<Vec<PodVolume>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodVolume {
    name: String,
    #[serde(default)]
    persistent_volume_claim: Option<ClaimSource>,
    #[serde(default)]
    ephemeral: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSource {
    #[serde(default)]
    claim_name: Text,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<String>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
    container_statuses: Option<Vec<ContainerStatus>>,
    ephemeral_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Deserialize)]
struct ContainerStatus {
    #[serde(default)]
    state: State,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct State {
    waiting: Option<IgnoredAny>,
    terminated: Option<IgnoredAny>,
}

pub(super) fn decode(wire: Wire) -> PodRecord {
    let Wire { metadata: meta, spec, status } = wire;
    PodRecord {
        claims: spec.volumes.iter().flatten().filter_map(|volume| claim(volume, &meta.name)).collect(),
        scheduled: spec.node_name.is_some_and(|node| !node.is_empty()),
        terminated: is_terminated(&meta, &status),
        namespace: meta.key().namespace,
        name: meta.name,
    }
}

/// The claim of a volume: named, or made for the pod (ownership is not checked, as upstream's index does not).
fn claim(volume: &PodVolume, pod: &Text) -> Option<Text> {
    match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{pod}-{}", volume.name).into()),
        (None, None) => None,
    }
}

/// Upstream's `IsPodTerminated`: it has ended, or it is being deleted and none of its containers runs.
fn is_terminated(meta: &Meta, status: &Status) -> bool {
    let ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let mut containers =
        [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses]
            .into_iter()
            .flatten()
            .flatten();
    ended
        || (meta.deleting()
            && containers
                .all(|container| container.state.terminated.is_some() || container.state.waiting.is_some()))
}
