//! `metav1.LabelSelector`, as documents write it.

use std::collections::BTreeMap;

use bindery_core::{Requirement, SelectorOperator, Text};
use serde::Deserialize;

/// The longest name in the key of a label, and the longest value, in bytes.
const LABEL_BYTES_MAX: usize = 63;
/// The longest prefix of the key of a label, in bytes.
const SUBDOMAIN_BYTES_MAX: usize = 253;

/// Selects by labels, as `metav1.LabelSelector`: every label and every requirement must match.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels with their values.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("maxProperties" = 64)))]
    pub match_labels: BTreeMap<Text, Text>,
    /// Requirements.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub match_expressions: Vec<MatchExpression>,
}

/// A requirement on a label, as `metav1.LabelSelectorRequirement`.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatchExpression {
    /// The key of the label, at most 63 characters after a prefix such as `example.com/`.
    #[cfg_attr(feature = "schema", schemars(length(max = 317)))]
    pub key: Text,
    /// `In` and `NotIn` need values, `Exists` and `DoesNotExist` take none.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", extend("enum" = ["In", "NotIn", "Exists", "DoesNotExist"]))
    )]
    pub operator: SelectorOperator,
    /// The values.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 256), inner(length(max = 63))))]
    pub values: Vec<Text>,
}

impl LabelSelector {
    /// Checks what the types do not say.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_labels()?;
        for MatchExpression { key, operator, values } in &self.match_expressions {
            let takes_values = matches!(operator, SelectorOperator::In | SelectorOperator::NotIn);
            if takes_values == values.is_empty() {
                let rule = if takes_values { "needs" } else { "takes no" };
                return Err(format!("the operator of key {key:?} {rule} values"));
            }
        }
        Ok(())
    }

    /// No object has a label that Kubernetes refuses, so the policy would never apply.
    fn check_labels(&self) -> Result<(), String> {
        for Requirement { key, values, .. } in self.requirements() {
            if !is_label_key(&key) {
                return Err(format!(
                    "{key:?} cannot be the key of a label; use at most {LABEL_BYTES_MAX} letters, digits, \
                     '-', '_' and '.', with a letter or digit at both ends, after a DNS subdomain and '/' if \
                     it has a prefix"
                ));
            }
            if let Some(value) = values.iter().find(|value| !is_label_value(value)) {
                return Err(format!(
                    "{value:?} of key {key:?} cannot be the value of a label; use at most {LABEL_BYTES_MAX} \
                     letters, digits, '-', '_' and '.', with a letter or digit at both ends"
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn requirements(&self) -> Vec<Requirement> {
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

/// `IsQualifiedName` of apimachinery.
fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(is_subdomain)
}

/// `IsValidLabelValue` of apimachinery.
fn is_label_value(value: &str) -> bool {
    let bytes = value.as_bytes();
    let is_end = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    bytes.len() <= LABEL_BYTES_MAX
        && is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// `IsDNS1123Subdomain` of apimachinery.
pub fn is_subdomain(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(is_allowed) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= SUBDOMAIN_BYTES_MAX && text.split('.').all(is_part)
}
