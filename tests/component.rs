//! The default engine's component, for tests.

use std::path::PathBuf;

/// Its bytes, as `cargo xtask components` built them; `cargo xtask test` builds it first.
///
/// # Panics
///
/// There is none.
pub(crate) fn default_engine() -> Vec<u8> {
    let path = std::env::var_os("BINDERY_ENGINE").map_or_else(
        || PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../components/bindery-engine.wasm"),
        PathBuf::from,
    );
    std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; build it with `cargo xtask components`", path.display()))
}
