//! The webhook's server and the server of health and metrics on loopback, with friendly and hostile clients.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "server/bodies.rs"]
mod bodies;
#[path = "server/changes.rs"]
mod changes;
#[path = "server/clients.rs"]
mod clients;
#[path = "server/connections.rs"]
mod connections;
#[path = "server/files.rs"]
mod files;
#[path = "server/fixture.rs"]
mod fixture;
#[path = "server/heads.rs"]
mod heads;
#[path = "server/health.rs"]
mod health;
#[path = "server/protocols.rs"]
mod protocols;
#[path = "server/shutdown.rs"]
mod shutdown;
