//! Policy documents: which module judges which claims, with which settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::{ClaimFact, Requirement, SelectorOperator, Text};
use serde::Deserialize;

use crate::{Counts, Matcher, Matches, OnFailure, Otherwise, Policy};

/// `apiVersion` of policy documents.
pub const API_VERSION: &str = "policy.bindery.dev/v1alpha1";
/// `kind` of documents that load a matcher.
pub const MATCH_POLICY: &str = "MatchPolicy";
/// `kind` of documents that load a reclaimer.
pub const RECLAIM_POLICY: &str = "ReclaimPolicy";

/// The most candidates that are scored, by default and at most 131,072.
const MAX_CANDIDATES: u32 = 4_096;
const MAX_CANDIDATES_MAX: u32 = 131_072;
/// The highest weight.
const WEIGHT_MAX: u32 = 100;

/// A document of kind `MatchPolicy`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatchPolicy {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`MATCH_POLICY`].
    pub kind: String,
    /// Its name.
    pub metadata: ObjectMeta,
    /// What it says.
    pub spec: MatchPolicySpec,
}

/// The metadata of a document.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    /// Name of the policy, in events and metrics.
    pub name: Text,
}

/// `spec` of a [`MatchPolicy`].
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatchPolicySpec {
    /// The component: `builtin:NAME`, or a file, relative to the document.
    pub module: String,
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
    pub weight: u32,
    /// The most candidates that are scored; 4,096 by default.
    #[serde(default = "max_candidates")]
    pub max_candidates: u32,
    /// What becomes of a claim when the policy fails.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// What becomes of a claim whose volumes are all rejected.
    #[serde(default)]
    pub otherwise: Otherwise,
}

/// The claims that a policy applies to. Every field must match.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatchClaims {
    /// Names of classes, `""` for no class; all if it is empty.
    #[serde(default)]
    pub class_names: Vec<Text>,
    /// Selects namespaces by their labels; all by default.
    #[serde(default)]
    pub namespace_selector: LabelSelector,
    /// Selects claims by their labels; all by default.
    #[serde(default)]
    pub claim_selector: LabelSelector,
}

/// `metav1.LabelSelector`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels with their values.
    #[serde(default)]
    pub match_labels: BTreeMap<Text, Text>,
    /// Requirements.
    #[serde(default)]
    pub match_expressions: Vec<MatchExpression>,
}

/// `metav1.LabelSelectorRequirement`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatchExpression {
    /// The key of the label.
    pub key: Text,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: SelectorOperator,
    /// The values.
    #[serde(default)]
    pub values: Vec<Text>,
}

fn one() -> u32 {
    1
}

fn max_candidates() -> u32 {
    MAX_CANDIDATES
}

impl MatchPolicy {
    /// Checks what the types do not say.
    ///
    /// # Errors
    ///
    /// One sentence that names the field, the value and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        if self.api_version != API_VERSION || self.kind != MATCH_POLICY {
            let (found, kind) = (&self.api_version, &self.kind);
            return Err(format!("it is {found:?} {kind:?}; a policy is {API_VERSION:?} {MATCH_POLICY:?}"));
        }
        let spec = &self.spec;
        for (field, value, max) in [
            ("spec.weight", spec.weight, WEIGHT_MAX),
            ("spec.maxCandidates", spec.max_candidates, MAX_CANDIDATES_MAX),
        ] {
            if !(1..=max).contains(&value) {
                return Err(format!("{field} is {value}; from 1 to {max} is allowed"));
            }
        }
        for (field, selector) in [
            ("spec.match.namespaceSelector", &spec.matches.namespace_selector),
            ("spec.match.claimSelector", &spec.matches.claim_selector),
        ] {
            for expression in &selector.match_expressions {
                let takes_values =
                    matches!(expression.operator, SelectorOperator::In | SelectorOperator::NotIn);
                if takes_values == expression.values.is_empty() {
                    let (key, rule) = (&expression.key, if takes_values { "needs" } else { "takes no" });
                    return Err(format!("{field}: the operator of key {key:?} {rule} values"));
                }
            }
        }
        Ok(())
    }

    /// What the document makes of a matcher, or of the reason why it could not be loaded.
    pub fn policy(&self, matcher: Result<Arc<dyn Matcher>, String>) -> Policy {
        let Self { metadata, spec, .. } = self;
        Policy {
            name: metadata.name.clone(),
            order: spec.order,
            weight: spec.weight,
            matches: Matches {
                classes: spec.matches.class_names.clone(),
                namespace: spec.matches.namespace_selector.requirements(),
                claim: spec.matches.claim_selector.requirements(),
            },
            matcher,
            settings: serde_json::Value::Object(spec.settings.clone()).to_string(),
            max_candidates: spec.max_candidates as usize,
            on_failure: spec.on_failure,
            otherwise: spec.otherwise,
            counts: Counts::default(),
        }
    }
}

impl LabelSelector {
    fn requirements(&self) -> Vec<Requirement> {
        let equal = self.match_labels.iter().map(|(key, value)| Requirement {
            key: key.clone(),
            operator: SelectorOperator::In,
            values: vec![value.clone()],
        });
        let expressions = self.match_expressions.iter().map(|MatchExpression { key, operator, values }| {
            Requirement { key: key.clone(), operator: *operator, values: values.clone() }
        });
        equal.chain(expressions).collect()
    }
}

impl crate::Chain {
    /// All facts that its policies declare, and the labels by which they select claims and namespaces.
    pub fn declared(&self) -> bindery_core::Declared {
        let mut declared = bindery_core::Declared::default();
        for policy in self.policies() {
            let selects = policy.matches.claim.iter().map(|needed| ClaimFact::Label(needed.key.clone()));
            declared.claims.extend(selects);
            declared.namespaces |= !policy.matches.namespace.is_empty();
            let Ok(matcher) = &policy.matcher else { continue };
            let metadata = matcher.metadata();
            declared.claims.extend(metadata.claim_facts.iter().cloned());
            declared.volumes.extend(metadata.columns.iter().cloned());
        }
        declared.namespaces |=
            declared.claims.iter().any(|fact| matches!(fact, ClaimFact::NamespaceLabel(_)));
        declared
    }
}
