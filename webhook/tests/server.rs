//! The door over loopback, and the server of health and metrics, by clients that behave and by clients that
//! do not.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "server/bodies.rs"]
mod bodies;
#[path = "server/changes.rs"]
mod changes;
#[path = "server/clients.rs"]
mod clients;
#[path = "server/crowds.rs"]
mod crowds;
#[path = "server/ends.rs"]
mod ends;
#[path = "server/face.rs"]
mod face;
#[path = "server/files.rs"]
mod files;
#[path = "server/heads.rs"]
mod heads;
#[path = "server/protocols.rs"]
mod protocols;
#[path = "server/world.rs"]
mod world;
