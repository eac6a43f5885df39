//! Pod (core/v1): which claims it references, and whether it still runs.

use bindery_core::Text;
use bindery_store::{ObservedPod, PodContent};
use serde::Deserialize;

use super::fields::{Presence, nullable};
use super::meta::Meta;

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
pub(super) struct Pod {
    #[prost(message, required, tag = "1")]
    metadata: Meta,
    #[serde(default)]
    #[prost(message, required, tag = "2")]
    spec: Spec,
    #[serde(default)]
    #[prost(message, required, tag = "3")]
    status: Status,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "1")]
    volumes: Vec<PodVolume>,
    #[prost(string, optional, tag = "10")]
    node_name: Option<String>,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
struct PodVolume {
    #[prost(string, tag = "1")]
    name: String,
    #[serde(flatten)]
    #[prost(message, required, tag = "2")]
    source: Source,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase", default)]
struct Source {
    #[prost(message, optional, tag = "10")]
    persistent_volume_claim: Option<ClaimSource>,
    #[prost(message, optional, tag = "29")]
    ephemeral: Option<Presence>,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase")]
struct ClaimSource {
    #[serde(default)]
    #[prost(string, tag = "1")]
    claim_name: String,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[prost(string, optional, tag = "1")]
    phase: Option<String>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "8")]
    container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "10")]
    init_container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "13")]
    ephemeral_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
struct ContainerStatus {
    #[serde(default)]
    #[prost(message, required, tag = "2")]
    state: State,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(default)]
struct State {
    #[prost(message, optional, tag = "1")]
    waiting: Option<Presence>,
    #[prost(message, optional, tag = "3")]
    terminated: Option<Presence>,
}

pub(super) fn decode(pod: Pod) -> ObservedPod {
    let Pod { metadata: meta, spec, status } = pod;
    let content = PodContent {
        claims: spec.volumes.iter().filter_map(|volume| claim(volume, &meta.name)).collect(),
        scheduled: spec.node_name.is_some_and(|node| !node.is_empty()),
        terminated: is_terminated(&meta, &status),
    };
    ObservedPod { namespace: meta.key().namespace, name: meta.name.into(), content: Ok(content) }
}

/// The claim of a pod's volume: named, or made for the pod. Like upstream's index, this does not check the
/// owner.
fn claim(volume: &PodVolume, pod: &str) -> Option<Text> {
    match (&volume.source.persistent_volume_claim, &volume.source.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.as_str().into()),
        (None, Some(_)) => Some(format!("{pod}-{}", volume.name).into()),
        (None, None) => None,
    }
}

/// Upstream's `IsPodTerminated`: the pod has ended, or it is being deleted and none of its containers runs.
fn is_terminated(meta: &Meta, status: &Status) -> bool {
    let ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let mut containers =
        [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses]
            .into_iter()
            .flatten();
    ended
        || (meta.deleting()
            && containers
                .all(|container| container.state.terminated.is_some() || container.state.waiting.is_some()))
}
