//! Records decisions, writes and swaps.

use bindery_core::{Evidence, GuardRead, GuardVerdict, Version};
use bindery_policy::{Difference, PolicyEvidence};
use bindery_store::Kind;

use crate::Shadow;

/// A sink of decisions and what follows from them. Called on the decision's own task, so it must not block.
pub trait Journal: Send + Sync {
    /// A decision was made, and the guard has checked it.
    fn decided(&self, decided: DecidedRecord);

    /// A write was answered, or was given up.
    fn wrote(&self, _wrote: WriteRecord<'_>) {}

    /// The engine or the policies were replaced.
    fn swapped(&self, _swapped: SwapRecord<'_>) {}

    /// A shadow decided otherwise. Called on the thread of the shadows.
    fn differed(&self, _differed: DifferenceRecord<'_>) {}
}

/// A decision with what it rests on.
pub struct DecidedRecord {
    /// The request, the engine's questions with the answers, and the decision.
    pub evidence: Evidence,
    /// [`bindery_policy::Chain::digest`] of the policies in force.
    pub chain: String,
    /// What policies have said; `None` if none applies.
    pub policies: Option<PolicyEvidence>,
    /// Units of fuel that the engine used; `None` where none are counted.
    pub fuel: Option<u64>,
    /// The live reads that the guard wanted.
    pub reads: Vec<GuardRead>,
    /// What the guard said.
    pub guard: GuardVerdict,
}

/// The answer to a write.
pub struct WriteRecord<'a> {
    /// The write in words.
    pub write: &'static str,
    /// Whether a claim or a volume was written.
    pub kind: Kind,
    /// Name of a volume, or `namespace/name` of a claim.
    pub object: &'a str,
    /// UID of the object; `None` for a creation.
    pub uid: Option<&'a str>,
    /// The version that the API server had to find; `None` for a creation.
    pub version: Option<&'a Version>,
    /// The version of the object afterwards (`None` after a deletion), or why the write failed.
    pub result: Result<Option<&'a Version>, String>,
}

/// How a shadow decided otherwise.
pub struct DifferenceRecord<'a> {
    /// The shadow.
    pub shadow: &'a Shadow,
    /// The digest of the engine that decided for it.
    pub engine: &'a str,
    /// [`bindery_policy::Chain::digest`] of the policies that decided, with the shadow if it is one of them.
    pub chain: &'a str,
    /// The difference.
    pub difference: &'a Difference,
}

/// What replaced what, each by its digest.
pub enum SwapRecord<'a> {
    /// Another engine.
    Engine {
        /// The one before.
        from: &'a str,
        /// The one that decides from now on.
        to: &'a str,
    },
    /// Other policies.
    Policies {
        /// Those before.
        from: &'a str,
        /// Those that are asked from now on.
        to: &'a str,
    },
}
