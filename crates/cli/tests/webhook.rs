//! The webhook of `bindery serve` on a real API server: certificates, clients, limits, and answers in
//! kubectl.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "counts are printed")]

#[path = "webhook/certificates.rs"]
mod certificates;
#[path = "webhook/configuration.rs"]
mod configuration;
#[path = "webhook/drain.rs"]
mod drain;
#[path = "webhook/files.rs"]
mod files;
#[path = "webhook/idle_connections.rs"]
mod idle_connections;
#[path = "webhook/kubectl.rs"]
mod kubectl;
#[path = "webhook/policies.rs"]
mod policies;
#[path = "webhook/settings.rs"]
mod settings;
#[path = "webhook/webhooks.rs"]
mod webhooks;
