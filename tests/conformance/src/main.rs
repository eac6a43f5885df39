//! The runner of recorded cases; `cargo xtask conformance` builds what it needs and calls it.
fn main() {}
