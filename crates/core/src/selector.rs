//! Label selectors of claims, as requirements that the host evaluates over its index.

use serde::{Deserialize, Serialize};

use crate::Text;

/// `spec.selector` of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Selector {
    /// All requirements must hold; none at all (a present but empty selector) matches every volume.
    Requirements(Vec<Requirement>),
    /// Not a selector (an unknown operator, values where none may be): matching fails with an error,
    /// as upstream's does (`LabelSelectorAsSelector`).
    Invalid(Text),
}

impl Selector {
    /// Most requirements and values, counted together, of the selector of a claim. Each search for volumes
    /// carries all of them and compares each volume with them, and this work cannot be interrupted.
    pub const LABELS_MAX: usize = 1_024;
    /// Most bytes of their keys and values.
    pub const BYTES_MAX: usize = 64 << 10;

    /// Number of requirements and values, counted together.
    pub fn labels(requirements: &[Requirement]) -> usize {
        requirements.iter().map(|requirement| 1 + requirement.values.len()).sum()
    }

    /// Bytes of the keys and values.
    pub fn bytes(requirements: &[Requirement]) -> usize {
        let bytes = |requirement: &Requirement| {
            requirement.key.len() + requirement.values.iter().map(|value| value.len()).sum::<usize>()
        };
        requirements.iter().map(bytes).sum()
    }
}

/// One requirement on the labels of a volume; `matchLabels` become [`SelectorOperator::In`] with one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// Key of the label.
    pub key: Text,
    /// How the values are compared.
    pub operator: SelectorOperator,
    /// The values; empty for [`SelectorOperator::Exists`] and [`SelectorOperator::DoesNotExist`].
    pub values: Vec<Text>,
}

/// Operators of `metav1.LabelSelectorRequirement`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SelectorOperator {
    /// The label is there and has one of the values.
    In,
    /// The label is missing or has none of the values.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is missing.
    DoesNotExist,
}

impl Requirement {
    /// Whether labels with this value under the key (or none) meet the requirement.
    pub fn matches(&self, value: Option<&str>) -> bool {
        self.operator.matches(&self.values, value)
    }
}

impl SelectorOperator {
    /// Whether a value, or none, is as the operator demands with these values.
    pub fn matches(self, values: &[Text], value: Option<&str>) -> bool {
        let is_listed = || value.is_some_and(|value| values.iter().any(|listed| &**listed == value));
        match self {
            Self::In => is_listed(),
            Self::NotIn => !is_listed(),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
        }
    }
}
