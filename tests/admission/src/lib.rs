//! The door of admission, whole but for TLS: the real router, the real decoder, the real engine, over a
//! watched store and an API server that may disagree with it.
//!
//! [`World`] is that; [`trial::run`] is the body of a property test and of the fuzz target: any bytes are a
//! request, and whatever they are, the answer is one that an API server understands.

pub mod trial;
mod world;

pub use world::{Answer, World, claim, create, update, volume, warnings};
