//! The default engine's component, for tests.

use std::path::PathBuf;

/// The bytes of the component, which `cargo xtask components` builds and `cargo xtask test` builds first.
///
/// # Panics
///
/// It was not built.
pub(crate) fn default_engine() -> Vec<u8> {
    let path = std::env::var_os("BINDERY_ENGINE").map_or_else(
        || PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../components/bindery-engine.wasm"),
        PathBuf::from,
    );
    std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; build it with `cargo xtask components`", path.display()))
}
