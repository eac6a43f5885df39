//! Records decisions.

use bindery_core::Evidence;
use bindery_policy::PolicyEvidence;

use crate::Key;

/// A sink of decisions. Called on the decision's own task, so it must not block.
pub trait Journal: Send + Sync {
    /// A decision was made, and the guard has checked it. `policies` is what policies have said; `None` if
    /// none applies.
    fn decided(
        &self,
        key: &Key,
        evidence: Evidence,
        policies: Option<PolicyEvidence>,
        outcome: DecisionOutcome,
    );
}

/// Whether a decision was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionOutcome {
    /// The guard passed it; it was carried out.
    Passed,
    /// The guard refused it: why. Nothing of it was carried out.
    Refused(String),
    /// A live read that the guard needs failed: why. Nothing of it was carried out.
    Unproven(String),
    /// The cluster had changed meanwhile; the object was decided again.
    Stale(String),
}
