//! What policies read of claims and volumes beside what every decision reads.
//!
//! A policy declares its facts. Only declared facts are decoded and kept, and only while a loaded policy
//! declares them. A value of more than 4 KiB counts as missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Quantity, SelectorOperator, Spread, Text, Volume};

/// A fact of a claim, as a matcher declares it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ClaimFact {
    /// `metadata.namespace`.
    Namespace,
    /// `metadata.name`.
    Name,
    /// The value of a label of the claim.
    Label(Text),
    /// The value of an annotation of the claim.
    Annotation(Text),
    /// The value of a label of the claim's namespace.
    NamespaceLabel(Text),
    /// The value of a parameter of the claim's class.
    ClassParameter(Text),
    /// The name of the object that controls the claim, by its owner references: the pod of an ephemeral
    /// volume, or the StatefulSet or pod by its retention policy.
    OwnerName,
    /// The ordinal at the end of the claim's name, such as `2` in `data-postgres-2`.
    OwnerOrdinal,
}

/// A column of the volumes, as a matcher declares it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum VolumeFact {
    /// The value of a label of the volume.
    Label(Text),
    /// The value of an annotation of the volume.
    Annotation(Text),
    /// The value that `spec.nodeAffinity.required` requires of this node label; absent unless every term
    /// requires the same single value.
    Topology(Text),
    /// The class, `""` for none.
    ClassName,
    /// Name of the field of `spec` that holds the source, such as `csi`.
    Source,
    /// `spec.csi.driver`.
    Driver,
    /// `spec.persistentVolumeReclaimPolicy`.
    ReclaimPolicy,
    /// `status.lastPhaseTransitionTime`, in seconds since the epoch. Reclaimers do not see it: the host
    /// computes with it when a volume is due.
    PhaseTransition,
}

/// As people are told of it.
impl fmt::Display for VolumeFact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(key) => write!(f, "label {key}"),
            Self::Annotation(key) => write!(f, "annotation {key}"),
            Self::Topology(key) => write!(f, "the value of {key} that its node affinity requires"),
            Self::ClassName => f.write_str("the class"),
            Self::Source => f.write_str("the kind of its source"),
            Self::Driver => f.write_str("the CSI driver"),
            Self::ReclaimPolicy => f.write_str("the reclaim policy"),
            Self::PhaseTransition => f.write_str("the time of the last change of its phase"),
        }
    }
}

/// The values of declared facts that no other field of an object holds. An absent fact has no entry. In JSON
/// they are pairs, because only texts can be keys there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::box_collection, reason = "most objects have no facts, and an empty map takes three words")]
pub struct Facts<K: Ord>(Option<Box<BTreeMap<K, Text>>>);

impl<K: Ord> Facts<K> {
    /// The value of a fact.
    pub fn get(&self, fact: &K) -> Option<&Text> {
        self.0.as_ref()?.get(fact)
    }

    /// The facts that have a value.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Text)> {
        self.0.iter().flat_map(|facts| &**facts)
    }

    /// Sets the value of a fact, or removes it.
    pub fn set(&mut self, fact: K, value: Option<Text>) {
        let mut facts = self.0.take().map_or_else(BTreeMap::new, |facts| *facts);
        match value {
            Some(value) => _ = facts.insert(fact, value),
            None => _ = facts.remove(&fact),
        }
        *self = facts.into_iter().collect();
    }

    /// Whether no declared fact has a value.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl<K: Ord + Serialize> Serialize for Facts<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            let pairs: Option<Vec<_>> = self.0.as_ref().map(|facts| facts.iter().collect());
            pairs.serialize(serializer)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de, K: Ord + Deserialize<'de>> Deserialize<'de> for Facts<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let pairs = Option::<Vec<(K, Text)>>::deserialize(deserializer)?;
            Ok(pairs.into_iter().flatten().collect())
        } else {
            Option::deserialize(deserializer).map(Self)
        }
    }
}

impl<K: Ord> Default for Facts<K> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: Ord> FromIterator<(K, Text)> for Facts<K> {
    fn from_iter<I: IntoIterator<Item = (K, Text)>>(facts: I) -> Self {
        let facts: BTreeMap<K, Text> = facts.into_iter().collect();
        Self((!facts.is_empty()).then(|| Box::new(facts)))
    }
}

/// What the policies of a claim require of volumes before they judge any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Narrowed {
    /// What the columns must be.
    pub columns: Vec<ColumnRequirement>,
    /// The largest capacity.
    pub at_most: Option<Quantity>,
}

/// A requirement on a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnRequirement {
    /// The column.
    pub column: VolumeFact,
    /// How the values are compared.
    pub operator: SelectorOperator,
    /// The values; empty for `Exists` and `DoesNotExist`.
    pub values: Vec<Text>,
}

impl Narrowed {
    /// Whether a volume is as required.
    pub fn is_met_by(&self, volume: &Volume) -> bool {
        self.at_most.is_none_or(|most| volume.capacity.unwrap_or_default() <= most)
            && self
                .columns
                .iter()
                .all(|needed| needed.operator.matches(&needed.values, volume.fact(&needed.column).as_deref()))
    }
}

/// All facts that the loaded policies declare: what is decoded and kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// Facts of claims.
    pub claims: BTreeSet<ClaimFact>,
    /// Columns of volumes.
    pub volumes: BTreeSet<VolumeFact>,
    /// Whether a policy reads or selects by labels of namespaces.
    pub namespaces: bool,
    /// Whether a reclaimer is loaded, so that the last states of claims are kept for it.
    pub reclaims: bool,
    /// How policies spread volumes.
    pub spreads: BTreeSet<Spread>,
}

impl Declared {
    /// What is declared where no policy is loaded.
    pub const NONE: &Self = &Self {
        claims: BTreeSet::new(),
        volumes: BTreeSet::new(),
        namespaces: false,
        reclaims: false,
        spreads: BTreeSet::new(),
    };

    /// Adds what others declare.
    pub fn include(&mut self, Self { claims, volumes, namespaces, reclaims, spreads }: Self) {
        self.claims.extend(claims);
        self.volumes.extend(volumes);
        self.namespaces |= namespaces;
        self.reclaims |= reclaims;
        self.spreads.extend(spreads);
    }
}
