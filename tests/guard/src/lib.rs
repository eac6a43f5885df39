//! Random decisions over random worlds, judged by the guard and by an oracle.
//!
//! [`trial::run`] is the body of the property test and of the fuzz target. It makes from bytes a world
//! (`worlds`), a request, and a decision: the default engine's own, a changed one, or an invented one
//! (`decisions`). The guard judges the decision by its steps; the oracle (`oracle`) carries its writes out,
//! under every fault, and judges the objects. A decision that the guard allows must be harmless, and the
//! guard must allow the engine's decisions.

mod decisions;
mod model;
mod oracle;
pub mod trial;
mod worlds;
