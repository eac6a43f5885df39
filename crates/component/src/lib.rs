//! An engine as a WebAssembly component: types of the contract (`wit/`) to core types, the engine, and back.
//! Nothing else is here, and nothing outside the contract is imported.
//!
//! By its feature `default-engine` the crate is the component of the default engine. Without it, the crate of
//! an engine of one's own depends on it and calls `export_engine!`; see `examples/engine-worst-fit`.
//!
//! Natively only the conversions are here, and nothing calls them; `cargo xtask components` makes the
//! component.

/// The component is made for version 0.2 of the contract.
macro_rules! since_0_2 {
    ({ $($new:tt)* } else { $($old:tt)* }) => { $($new)* };
}

#[doc(hidden)]
pub mod bindings;
#[expect(dead_code, reason = "the host's half; and natively all, because the export is wasm only")]
mod carry;
#[cfg(target_family = "wasm")]
mod cluster;
#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub mod export;
#[cfg(target_family = "wasm")]
mod heap;

#[cfg(all(target_family = "wasm", feature = "default-engine"))]
export_engine!(bindery_engine::decide);
