//! The world `matcher`, as `wit-bindgen` makes it of the contract.
#![allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    dead_code,
    clippy::too_many_lines,
    clippy::str_to_string,
    clippy::allow_attributes_without_reason,
    clippy::crate_in_macro_def,
    reason = "generated code; wit/ has the documentation"
)]

wit_bindgen::generate!({
    path: "../../../wit/0.2",
    world: "matcher",
    pub_export_macro: true,
    default_bindings_module: "crate::bindings",
});

#[cfg(target_family = "wasm")]
use crate::Policy;
#[cfg(target_family = "wasm")]
export!(Policy);
