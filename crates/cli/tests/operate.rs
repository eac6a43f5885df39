//! `bindery serve` for operators, on a real API server: settings, observe mode, the switch from upstream's
//! binder, another binder, metrics, log and traces.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "operate/foreign_writer.rs"]
mod foreign_writer;
#[path = "operate/observe.rs"]
mod observe;
#[path = "operate/reports.rs"]
mod reports;
#[path = "operate/settings.rs"]
mod settings;
#[path = "operate/switching.rs"]
mod switching;
#[path = "operate/traces.rs"]
mod traces;
