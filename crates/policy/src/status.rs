//! `status` of policies and engines that are cluster objects. The leader writes it.

use std::collections::BTreeMap;

use bindery_core::Text;
use serde::{Deserialize, Serialize};

/// `status` of a `MatchPolicy`, `ReclaimPolicy` or `Engine`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectStatus {
    /// `metadata.generation` that the conditions are about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// SHA-256 of the module in use, as `sha256:HEX`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Text>,
    /// SHA-256 of the module of the newest generation, where another one is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted_digest: Option<Text>,
    /// `Ready`, `Compiling`, `SettingsValid` and `Effective`; of a module of a registry also `Verified`.
    #[cfg_attr(feature = "schema", schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"],
    )))]
    pub conditions: Vec<Condition>,
    /// The last generation that was ready. It stays in use while a later one is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_good: Option<LastGood>,
    /// Generations that were ready before the last good one, the newest first; at most 4, and 256 KiB.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<LastGood>,
    /// The generation that was taken back because its first calls failed; the last good one replaces it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<RolledBack>,
    /// Calls of the module by the leader since it started.
    pub calls: u64,
    /// Calls that gave no answer.
    pub faults: u64,
    /// The last call that gave no answer. It stays until another one fails, also of a later generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_fault: Option<LastFault>,
    /// Volumes that it rejected when it judged them, by reason. Those that its narrowing leaves out are not
    /// counted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rejections: BTreeMap<Text, u64>,
    /// The replicas that have loaded something else than the leader.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
    )))]
    pub replicas: Vec<ReplicaStatus>,
    /// What its decisions in mode `shadow` have shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowStatus>,
}

impl ObjectStatus {
    /// The condition of that type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| *condition.kind == *kind)
    }
}

/// A call of a module that gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LastFault {
    /// When it was made, by RFC 3339.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub time: Text,
    /// What happened, for people.
    pub message: Text,
}

/// What a replica has loaded that differs from the leader.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    /// Its name, as in the Lease.
    pub name: Text,
    /// `metadata.generation` that the entry is about.
    pub observed_generation: i64,
    /// SHA-256 of the module in use, as `sha256:HEX`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Text>,
    /// The status of its condition `Ready`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["True", "False", "Unknown"])))]
    pub ready: Text,
    /// The reason of its condition `Ready`.
    pub reason: Text,
    /// A sentence for people.
    pub message: Text,
    /// When the replica wrote or renewed the entry, by RFC 3339. It renews it every 5 minutes; the leader
    /// removes it after 15.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub renew_time: Text,
}

/// What the decisions of a shadow have shown, since the leader has loaded this generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ShadowStatus {
    /// Decisions that were compared, those that differ included.
    pub compared: u64,
    /// Decisions that could not be compared, because the cluster has changed too much meanwhile.
    pub not_comparable: u64,
    /// Decisions that the shadow did not make, because there were too many.
    pub dropped: u64,
    /// Decisions that the shadow did not make, because their objects are outside its share.
    pub not_sampled: u64,
    /// The share of claims and volumes about which the shadow decides, in percent; absent if it is all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_percent: Option<u32>,
    /// Decisions that differ, by kind: `other-volume`, `binds`, `binds-none`, `provisions`, `other-fate`,
    /// `other-labels`, `other-step`, `other-reason`, `fault` and `refused`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub differences: BTreeMap<Text, u64>,
    /// What would have become of the volumes that are released now. Only of a `ReclaimPolicy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released: Option<ShadowReleased>,
    /// The latest differences, newest first, of each object and kind one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub latest: Vec<ShadowDifference>,
}

/// What would have become of the volumes that are released now, had the policy been enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ShadowReleased {
    /// They would be kept.
    pub kept: u64,
    /// They would be kept, and deleted later.
    pub later: u64,
    /// They would have been deleted by now.
    pub due: u64,
    /// They would be offered again, with their data or scrubbed.
    pub offered: u64,
}

/// A decision of a shadow that differs from the one that was carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ShadowDifference {
    /// When it was made, by RFC 3339.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub time: Text,
    /// Its object, as `pvc NAMESPACE/NAME` or `pv NAME`.
    pub object: Text,
    /// How it differs.
    pub kind: Text,
    /// What was decided.
    pub active: ShadowAnswer,
    /// What the shadow decides.
    pub shadow: ShadowAnswer,
}

/// An answer with its reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ShadowAnswer {
    /// What is done.
    pub answer: Text,
    /// Why.
    pub reason: Text,
}

/// The last generation that was ready.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LastGood {
    /// Its `metadata.generation`.
    pub generation: i64,
    /// SHA-256 of its module, as `sha256:HEX`.
    pub digest: Text,
    /// Its `spec`.
    pub spec: serde_json::Map<String, serde_json::Value>,
}

/// A generation that was taken back.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RolledBack {
    /// Its `metadata.generation`.
    pub generation: i64,
    /// SHA-256 of its module, as `sha256:HEX`.
    pub digest: Text,
}

impl RolledBack {
    /// Whether it is this generation.
    pub fn is_of(&self, good: &LastGood) -> bool {
        self.generation == good.generation && self.digest == good.digest
    }
}

/// `metav1.Condition`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Its name.
    #[serde(rename = "type")]
    pub kind: Text,
    /// `True`, `False` or `Unknown`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["True", "False", "Unknown"])))]
    pub status: Text,
    /// A word in CamelCase.
    pub reason: Text,
    /// A sentence for people.
    pub message: Text,
    /// The generation that it is about.
    pub observed_generation: i64,
    /// When `status` changed last, by RFC 3339.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub last_transition_time: Text,
}
