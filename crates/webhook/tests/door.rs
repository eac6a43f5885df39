//! The door over loopback, and the server of health and metrics, by clients that behave and by clients that
//! do not.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "door/bodies.rs"]
mod bodies;
#[path = "door/changes.rs"]
mod changes;
#[path = "door/clients.rs"]
mod clients;
#[path = "door/crowds.rs"]
mod crowds;
#[path = "door/ends.rs"]
mod ends;
#[path = "door/face.rs"]
mod face;
#[path = "door/files.rs"]
mod files;
#[path = "door/heads.rs"]
mod heads;
#[path = "door/protocols.rs"]
mod protocols;
#[path = "door/world.rs"]
mod world;
