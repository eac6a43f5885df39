//! Siblings: the claims among which a policy spreads volumes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Claim, ClaimFact, Text, Volume, VolumeFact};

/// How volumes are spread, as a matcher declares it: siblings are claims of one namespace with equal facts,
/// and a row shows how many volumes of siblings have its value of a column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Spread {
    /// The column.
    pub by: VolumeFact,
    /// The facts that make claims siblings, each one that [`Claim::fact`] has.
    pub among: Vec<ClaimFact>,
}

/// The claims of one namespace that have equal facts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Siblings {
    /// What is counted of them.
    pub spread: Spread,
    /// Their namespace.
    pub namespace: Text,
    /// Their values of the facts [`Spread::among`].
    pub facts: Vec<Option<Text>>,
}

/// How many volumes siblings have, by their value of the column [`Spread::by`]. Volumes without a value are
/// counted together; values of no volume have no entry.
pub type Counts = BTreeMap<Option<Text>, u32>;

/// What was counted for a claim, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The claim and its siblings.
    pub siblings: Siblings,
    /// The volumes of the others.
    pub counts: Counts,
}

impl Siblings {
    /// A claim and its siblings.
    pub fn of_claim(spread: &Spread, claim: &Claim) -> Self {
        let facts = spread.among.iter().map(|fact| claim.fact(fact).cloned()).collect();
        Self { spread: spread.clone(), namespace: claim.key.namespace.clone(), facts }
    }
}

impl Counted {
    /// How many volumes of siblings share a volume's value.
    pub fn count(&self, volume: &Volume) -> u32 {
        self.count_of(&volume.fact(&self.siblings.spread.by))
    }

    /// How many volumes of siblings have a value.
    pub fn count_of(&self, value: &Option<Text>) -> u32 {
        self.counts.get(value).copied().unwrap_or_default()
    }
}
