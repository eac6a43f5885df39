//! What an operator does with `bindery serve` on a real API server: sets it up, looks on first, is warned of
//! another binder, reads its metrics, its log and its traces.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "operate/alarm.rs"]
mod alarm;
#[path = "operate/observe.rs"]
mod observe;
#[path = "operate/settings.rs"]
mod settings;
#[path = "operate/switching.rs"]
mod switching;
#[path = "operate/telling.rs"]
mod telling;
#[path = "operate/traces.rs"]
mod traces;
#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "serve/world.rs"]
mod world;
