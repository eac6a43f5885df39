//! The door of `bindery serve` on a real API server: certificates that Bindery makes, certificates in files,
//! and who is let in.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what was done is printed")]

#[path = "door/certificates.rs"]
mod certificates;
#[path = "door/configuration.rs"]
mod configuration;
#[path = "door/ends.rs"]
mod ends;
#[path = "door/files.rs"]
mod files;
#[path = "door/flood.rs"]
mod flood;
#[path = "door/settings.rs"]
mod settings;
#[path = "door/site.rs"]
mod site;
#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "serve/world.rs"]
mod world;
