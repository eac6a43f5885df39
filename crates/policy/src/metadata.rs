//! What a policy says about itself.

use bindery_core::{ClaimFact, Text, VolumeFact};

/// What a policy says about itself. The same for every call, whatever the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Its name, a DNS label such as `same-zone`.
    pub name: Text,
    /// Its version, by semantic versioning.
    pub version: Text,
    /// One sentence for people.
    pub description: Text,
    /// The facts of a claim that it is shown, in this order.
    pub claim_facts: Vec<ClaimFact>,
    /// The columns of the volumes that it is shown, in this order.
    pub columns: Vec<VolumeFact>,
    /// How volumes are to be spread, if they are.
    pub spread: Option<Spread>,
    /// Its reasons. An answer names a reason by its place in this list.
    pub reasons: Vec<Reason>,
    /// Whether it scores volumes. If not, the first volume that it allows is taken.
    pub scores: bool,
    /// JSON Schema of its settings, as text.
    pub settings_schema: String,
}

/// A reason for which a policy rejects a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Its name, a DNS label such as `other-zone`; counted in events and metrics.
    pub name: Text,
    /// The sentence for people. `{claim.N}` and `{volume.N}` stand for the declared facts number N, from 0.
    pub text: Text,
}

/// How volumes are spread: siblings are claims of one namespace with equal values of some facts, and a row
/// shows how many volumes of siblings have its value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The column.
    pub by: VolumeFact,
    /// The facts that make claims siblings.
    pub among: Vec<ClaimFact>,
}
