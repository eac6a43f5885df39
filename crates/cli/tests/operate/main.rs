//! `bindery serve` for operators, on a real API server: settings, observe mode, the switch from upstream's
//! binder, another binder, metrics, log and traces.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod foreign_writer;
mod observe;
mod reports;
mod settings;
mod switching;
mod traces;
