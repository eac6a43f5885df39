//! The chart without a cluster: what it renders, what it refuses, and what documents say about it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cases;
mod links;
mod monitoring;
mod rights;
mod schema;
mod security;
mod sets;
mod settings;
mod testing;
