//! The webhook's server and the server of health and metrics on loopback, with friendly and hostile clients.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bodies;
mod changes;
mod clients;
mod connections;
mod files;
mod fixture;
mod heads;
mod health;
mod protocols;
mod shutdown;
