//! The door of `bindery serve` on a real API server: certificates that Bindery makes, certificates in files,
//! and who is let in.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what was done is printed")]

#[path = "webhook/certificates.rs"]
mod certificates;
#[path = "webhook/configuration.rs"]
mod configuration;
#[path = "webhook/ends.rs"]
mod ends;
#[path = "webhook/files.rs"]
mod files;
#[path = "webhook/flood.rs"]
mod flood;
#[path = "webhook/settings.rs"]
mod settings;
#[path = "webhook/site.rs"]
mod site;
#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "serve/world.rs"]
mod world;
