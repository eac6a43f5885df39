//! Where decisions are written down.

use bindery_core::Evidence;

use crate::Key;

/// A sink of decisions. Called on the decision's own task, so it must not block.
pub trait Journal: Send + Sync {
    /// A decision was made and judged.
    fn decided(&self, key: &Key, evidence: Evidence, verdict: Verdict);
}

/// What became of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The guard passed it; it was carried out.
    Passed,
    /// The guard refused it: why. Nothing of it was carried out.
    Refused(String),
    /// A live read that the guard needs failed: why. Nothing of it was carried out.
    Unproven(String),
    /// The world had changed under it; the object was decided again.
    Stale(String),
}
