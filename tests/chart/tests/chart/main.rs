//! The chart without a cluster: what it renders, what it refuses, and what is said of it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cases;
mod links;
mod names;
mod rights;
mod schema;
mod security;
mod sets;
mod settings;
mod watching;
