//! The chart on a real API server: the objects are valid, the webhook gets only relevant requests, and
//! Bindery needs exactly the rights that the roles grant.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod account;
mod api_server;
mod authors;
mod guides;
mod kinds;
mod objects;
mod release;
mod replica;
mod reviews;
mod rights;
mod steering;
mod stopping;
mod upgrading;
