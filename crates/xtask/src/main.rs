//! The automation.
fn main() {}
