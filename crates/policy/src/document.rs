//! Policy documents: which module judges which claims, with which settings.

use std::sync::Arc;

use bindery_core::{CLAIM_FACTS, ClaimFact, RECLAIM_POLICY_BEFORE, Text, VolumeFact, is_dns_label};
use serde::{Deserialize, Serialize};

use crate::{
    ALL_PERCENT, Allowed, LabelSelector, Matcher, Matches, OnFailure, Otherwise, Policy, PolicyMetrics, Pull,
    ReclaimRule, Reclaimer,
};

/// `apiVersion` of policy documents.
pub const API_VERSION: &str = "policy.bindery.dev/v1alpha1";
/// `kind` of documents that load a matcher.
pub const MATCH_POLICY: &str = "MatchPolicy";
/// `kind` of documents that load a reclaimer.
pub const RECLAIM_POLICY: &str = "ReclaimPolicy";

/// `kind` of documents that load an engine.
pub const ENGINE: &str = "Engine";

/// The most candidates that are scored, by default and at most 131,072.
const MAX_CANDIDATES: u32 = 4_096;
const MAX_CANDIDATES_MAX: u32 = 131_072;
/// The highest weight.
const WEIGHT_MAX: u32 = 100;
/// The most bytes of settings, as JSON. A cluster object keeps them several times in its status, and etcd
/// refuses an object of more than 1.5 MiB.
const SETTINGS_MAX: usize = 256 << 10;
/// The longest module that a cluster object can name, in characters.
#[cfg(feature = "schema")]
const MODULE_MAX: u32 = 1_024;

/// A document with this `spec`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyDocument<S> {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`MATCH_POLICY`], [`RECLAIM_POLICY`] or [`ENGINE`].
    pub kind: String,
    /// Its name.
    pub metadata: ObjectMeta,
    /// What it says.
    pub spec: S,
}

/// A document of kind `MatchPolicy`.
pub type MatchPolicy = PolicyDocument<MatchPolicySpec>;
/// A document of kind `ReclaimPolicy`.
pub type ReclaimPolicy = PolicyDocument<ReclaimPolicySpec>;
/// A document of kind `Engine`.
pub type EngineDocument = PolicyDocument<EngineSpec>;

/// The metadata of a document.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    /// Name of the policy, in events and metrics.
    pub name: Text,
}

/// What a policy or an engine does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum EffectMode {
    /// It is in effect.
    #[default]
    Enforce,
    /// It decides beside those in effect, and what it would have changed is counted. Nothing is carried out.
    Shadow,
    /// It is not loaded.
    Off,
}

/// `spec` of kind `Engine`.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EngineSpec {
    /// The component: `builtin:NAME` for one that ships; the absolute path of a file; of a document also a
    /// path relative to it; of a cluster object also `configmap:NAMESPACE/NAME/KEY`, the binary data of a
    /// ConfigMap, and `oci://HOST/REPOSITORY@sha256:HEX`, an artifact of a registry.
    #[cfg_attr(feature = "schema", schemars(length(max = MODULE_MAX)))]
    pub module: String,
    /// How a module of a registry is fetched; only for a module `oci://…` of a cluster object.
    #[serde(default)]
    pub pull: Pull,
    /// Whether it is in effect (`enforce`, the default), decides beside the one that is and shows differences
    /// (`shadow`), or is not loaded (`off`). One engine is in effect: of several the first by name.
    #[serde(default)]
    pub mode: EffectMode,
    /// In mode `shadow`: the share of claims and volumes about which it decides, in percent, from 1 to 100.
    /// By its UID each is in the share always or never. 100 by default.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = ALL_PERCENT)))]
    pub sample_percent: Option<u32>,
}

/// `spec` of kind `MatchPolicy`.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatchPolicySpec {
    /// The component: `builtin:NAME` for one that ships; the absolute path of a file; of a document also a
    /// path relative to it; of a cluster object also `configmap:NAMESPACE/NAME/KEY`, the binary data of a
    /// ConfigMap, and `oci://HOST/REPOSITORY@sha256:HEX`, an artifact of a registry.
    #[cfg_attr(feature = "schema", schemars(length(max = MODULE_MAX)))]
    pub module: String,
    /// How a module of a registry is fetched; only for a module `oci://…` of a cluster object.
    #[serde(default)]
    pub pull: Pull,
    /// Whether it is in effect (`enforce`, the default), decides beside those that are and shows differences
    /// (`shadow`), or is not loaded (`off`).
    #[serde(default)]
    pub mode: EffectMode,
    /// In mode `shadow`: the name of the policy that this one replaces in its decisions; by default the one
    /// of its own name, if there is one.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 63)))]
    pub replaces: Option<Text>,
    /// In mode `shadow`: the share of claims and volumes about which it decides, in percent, from 1 to 100.
    /// By its UID each is in the share always or never. 100 by default.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = ALL_PERCENT)))]
    pub sample_percent: Option<u32>,
    /// The settings of the matcher, by its schema.
    #[serde(default)]
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// The claims that it applies to; all by default.
    #[serde(default, rename = "match")]
    pub matches: MatchClaims,
    /// Policies of lower order are asked first; those of equal order by name. 0 by default.
    #[serde(default)]
    pub order: i32,
    /// By what its scores are multiplied, from 1 to 100. 1 by default.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = WEIGHT_MAX)))]
    pub weight: u32,
    /// The most candidates that are scored; 4,096 by default.
    #[serde(default = "max_candidates")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = MAX_CANDIDATES_MAX)))]
    pub max_candidates: u32,
    /// What becomes of a claim when the policy fails. It has no meaning in mode `shadow`.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// What becomes of a claim whose volumes are all rejected.
    #[serde(default)]
    pub otherwise: Otherwise,
}

/// The claims that a policy applies to. Every field must match.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatchClaims {
    /// Names of classes, `""` for no class; all if it is empty.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 256), inner(length(max = 253))))]
    pub class_names: Vec<Text>,
    /// Selects namespaces by their labels; all by default.
    #[serde(default)]
    pub namespace_selector: LabelSelector,
    /// Selects claims by their labels; all by default.
    #[serde(default)]
    pub claim_selector: LabelSelector,
}

/// `spec` of kind `ReclaimPolicy`.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReclaimPolicySpec {
    /// The component: `builtin:NAME` for one that ships; the absolute path of a file; of a document also a
    /// path relative to it; of a cluster object also `configmap:NAMESPACE/NAME/KEY`, the binary data of a
    /// ConfigMap, and `oci://HOST/REPOSITORY@sha256:HEX`, an artifact of a registry.
    #[cfg_attr(feature = "schema", schemars(length(max = MODULE_MAX)))]
    pub module: String,
    /// How a module of a registry is fetched; only for a module `oci://…` of a cluster object.
    #[serde(default)]
    pub pull: Pull,
    /// Whether it is in effect (`enforce`, the default), decides beside those that are and shows differences
    /// (`shadow`), or is not loaded (`off`).
    #[serde(default)]
    pub mode: EffectMode,
    /// In mode `shadow`: the name of the policy that this one replaces in its decisions; by default the one
    /// of its own name, if there is one.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 63)))]
    pub replaces: Option<Text>,
    /// In mode `shadow`: the share of claims and volumes about which it decides, in percent, from 1 to 100.
    /// By its UID each is in the share always or never. 100 by default.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = ALL_PERCENT)))]
    pub sample_percent: Option<u32>,
    /// The settings of the reclaimer, by its schema.
    #[serde(default)]
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// The volumes that it applies to: by their class, and by the claim that each was bound to. All by
    /// default.
    #[serde(default, rename = "match")]
    pub matches: MatchClaims,
    /// Reclaimers of lower order are asked first; those of equal order by name. 0 by default.
    #[serde(default)]
    pub order: i32,
    /// What it may do beyond the reclaim policies of volumes; nothing by default.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 3)))]
    pub allow: Vec<Allowed>,
    /// What becomes of a volume when the reclaimer fails. It has no meaning in mode `shadow`.
    #[serde(default)]
    pub on_failure: OnFailure,
}

fn one() -> u32 {
    1
}

fn max_candidates() -> u32 {
    MAX_CANDIDATES
}

impl EngineDocument {
    /// Checks what the types do not say.
    ///
    /// # Errors
    ///
    /// One sentence that names the field, the value and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        check_name(&self.metadata)?;
        check_sample(self.spec.sample_percent)?;
        self.spec.pull.check(&self.spec.module)
    }
}

impl MatchPolicy {
    /// Checks what the types do not say.
    ///
    /// # Errors
    ///
    /// One sentence that names the field, the value and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        check_name(&self.metadata)?;
        let spec = &self.spec;
        spec.pull.check(&spec.module)?;
        check_range("spec.weight", spec.weight, WEIGHT_MAX)?;
        check_range("spec.maxCandidates", spec.max_candidates, MAX_CANDIDATES_MAX)?;
        check_sample(spec.sample_percent)?;
        check_settings_size(MATCH_POLICY, &self.metadata, &spec.settings)?;
        spec.matches.check()
    }

    /// What the document makes of a matcher, or of the reason why it could not be loaded.
    pub fn policy(&self, matcher: Result<Arc<dyn Matcher>, String>) -> Policy {
        let Self { metadata, spec, .. } = self;
        Policy {
            name: metadata.name.clone(),
            order: spec.order,
            weight: spec.weight,
            matches: spec.matches.matches(),
            matcher,
            settings: serde_json::Value::Object(spec.settings.clone()).to_string(),
            max_candidates: spec.max_candidates as usize,
            on_failure: spec.on_failure,
            otherwise: spec.otherwise,
            metrics: PolicyMetrics::default(),
        }
    }
}

impl ReclaimPolicy {
    /// Checks what the types do not say.
    ///
    /// # Errors
    ///
    /// One sentence that names the field, the value and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        check_name(&self.metadata)?;
        self.spec.pull.check(&self.spec.module)?;
        check_sample(self.spec.sample_percent)?;
        check_settings_size(RECLAIM_POLICY, &self.metadata, &self.spec.settings)?;
        self.spec.matches.check()
    }

    /// What the document makes of a reclaimer, or of the reason why it could not be loaded.
    pub fn rule(&self, reclaimer: Result<Arc<dyn Reclaimer>, String>) -> ReclaimRule {
        let Self { metadata, spec, .. } = self;
        ReclaimRule {
            name: metadata.name.clone(),
            order: spec.order,
            matches: spec.matches.matches(),
            reclaimer,
            settings: serde_json::Value::Object(spec.settings.clone()).to_string(),
            allow: spec.allow.clone(),
            on_failure: spec.on_failure,
            metrics: PolicyMetrics::default(),
        }
    }
}

/// Policies and engines are named in metrics.
fn check_name(ObjectMeta { name }: &ObjectMeta) -> Result<(), String> {
    if is_dns_label(name) {
        return Ok(());
    }
    Err(format!("metadata.name is {name:?}; a DNS label is allowed, such as \"same-zone\""))
}

/// A share of no object shows nothing.
fn check_sample(percent: Option<u32>) -> Result<(), String> {
    check_range("spec.samplePercent", percent.unwrap_or(ALL_PERCENT), ALL_PERCENT)
}

fn check_range(field: &str, value: u32, max: u32) -> Result<(), String> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(format!("{field} is {value}; from 1 to {max} is allowed"))
}

/// Settings that are too large for a status are refused, also in files, so that a document works in both.
fn check_settings_size(
    kind: &str,
    meta: &ObjectMeta,
    settings: &serde_json::Map<String, serde_json::Value>,
) -> Result<(), String> {
    let bytes = serde_json::to_string(settings).map_err(|error| error.to_string())?.len();
    if bytes <= SETTINGS_MAX {
        return Ok(());
    }
    Err(format!(
        "{kind} {:?}: spec.settings has {bytes} bytes as JSON; at most {SETTINGS_MAX} are allowed: shorten \
         them, or build what is large into the module",
        meta.name
    ))
}

impl MatchClaims {
    fn check(&self) -> Result<(), String> {
        for (field, selector) in [
            ("spec.match.namespaceSelector", &self.namespace_selector),
            ("spec.match.claimSelector", &self.claim_selector),
        ] {
            selector.check().map_err(|why| format!("{field}: {why}"))?;
        }
        Ok(())
    }

    fn matches(&self) -> Matches {
        Matches {
            classes: self.class_names.clone(),
            namespace: self.namespace_selector.requirements(),
            claim: self.claim_selector.requirements(),
        }
    }
}

impl crate::Chain {
    /// All facts that its policies declare, and the labels by which they select claims and namespaces.
    pub fn declared(&self) -> bindery_core::Declared {
        let mut declared = bindery_core::Declared::default();
        // Volumes that a reclaimer has kept are counted when it is taken away.
        declared.volumes.insert(VolumeFact::Annotation(RECLAIM_POLICY_BEFORE.into()));
        for policy in self.policies() {
            let selects = policy.matches.claim.iter().map(|needed| ClaimFact::Label(needed.key.clone()));
            declared.claims.extend(selects);
            declared.namespaces |= !policy.matches.namespace.is_empty();
            let Ok(matcher) = &policy.matcher else { continue };
            matcher.metadata().declare(&mut declared);
        }
        for rule in self.reclaimers() {
            declared.reclaims = true;
            declared.claims.extend(rule.claim_facts());
            let columns = rule.reclaimer.iter().flat_map(|reclaimer| &reclaimer.metadata().columns);
            declared.volumes.extend(columns.cloned());
        }
        if declared.reclaims {
            declared.volumes.insert(VolumeFact::Annotation(CLAIM_FACTS.into()));
            declared.volumes.insert(VolumeFact::PhaseTransition);
        }
        declared.namespaces |=
            declared.claims.iter().any(|fact| matches!(fact, ClaimFact::NamespaceLabel(_)));
        declared
    }
}
