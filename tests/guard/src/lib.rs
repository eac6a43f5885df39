//! Random decisions over random worlds, judged by the guard and by an oracle.
//!
//! [`trial::run`] is the body of the property test and of the fuzz target: bytes become a world (`worlds`), a
//! request, and a decision, which is the default engine's own, that with something changed, or an invention
//! (`decisions`). The guard judges the decision by its steps; the oracle (`oracle`) carries its writes out,
//! under every fault, and judges the objects. What the guard allows must be harmless, and what the engine
//! decides must be allowed.

mod decisions;
mod model;
mod oracle;
pub mod trial;
mod worlds;
