//! Admission without TLS: the real router, decoder and engine, over cached objects and an API server that may
//! differ from them.
//!
//! [`Replica`] is such a replica. [`trial::run`] is the body of a property test and of the fuzz target: it
//! sends any bytes as a request, and the answer must be one that an API server understands.

mod policies;
mod replica;
pub mod trial;

pub use replica::{Answer, Replica, claim, create, update, volume, warnings};
