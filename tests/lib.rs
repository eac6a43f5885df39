//! Tests that span crates.
