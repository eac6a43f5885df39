//! The guard cannot be talked round: random decisions over random worlds, judged by an oracle.
//!
//! [`trial::run`] is the body of the property tests and of the fuzz target: bytes become a world (`worlds`),
//! a request, and a decision, which is upstream's own (`upstream`), that with something changed, or an
//! invention (`decisions`). The guard judges the decision by its steps; the oracle (`oracle`) carries its
//! writes out, under every fault, and judges the objects. What the guard allows must be harmless, and what
//! upstream does must be allowed.

mod choices;
mod decisions;
mod model;
mod oracle;
pub mod trial;
mod upstream;
mod worlds;
