//! The webhook of `bindery serve` on a real API server: certificates, clients, limits, and answers in
//! kubectl.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "counts are printed")]

mod certificates;
mod configuration;
mod drain;
mod files;
mod idle_connections;
mod kubectl;
mod policies;
mod settings;
mod webhooks;
