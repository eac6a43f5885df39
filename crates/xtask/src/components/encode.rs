//! Turns a core module into a component that imports its contract and nothing else.

use anyhow::{Context as _, Result, bail};
use wit_component::{ComponentEncoder, DecodedWasm};
use wit_parser::{Resolve, World, WorldItem, WorldKey};

/// The prefix of the imports that a component may have.
const CONTRACT: &str = "bindery:policy/";

/// Encodes a module that `wit-bindgen` made. Refuses one that exports nothing or imports anything outside the
/// contract.
pub(super) fn component(module: &[u8]) -> Result<Vec<u8>> {
    let component = ComponentEncoder::default().validate(true).module(module)?.encode()?;
    let DecodedWasm::Component(resolve, world) = wit_component::decode(&component)? else {
        bail!("the encoder made a WIT package, not a component");
    };
    let world = &resolve.worlds[world];
    if world.exports.is_empty() {
        bail!(
            "the component exports nothing: the crate must call wit-bindgen's `export!` for the wasm target"
        );
    }
    let foreign = foreign_imports(&resolve, world)?;
    if !foreign.is_empty() {
        bail!("the component imports {}; an engine may import only {CONTRACT}*", foreign.join(", "));
    }
    Ok(component)
}

/// The names of the imports that are not interfaces of the contract.
fn foreign_imports(resolve: &Resolve, world: &World) -> Result<Vec<String>> {
    let mut foreign = Vec::new();
    for (key, item) in &world.imports {
        let name = match (key, item) {
            (WorldKey::Interface(id), WorldItem::Interface { .. }) => {
                resolve.id_of(*id).context("an imported interface must have a package")?
            }
            (key, _) => resolve.name_world_key(key),
        };
        if !name.starts_with(CONTRACT) {
            foreign.push(name);
        }
    }
    Ok(foreign)
}

#[cfg(test)]
mod tests {
    use wit_component::StringEncoding;
    use wit_parser::ManglingAndAbi;

    use super::*;

    /// An empty module for a world.
    fn module(world: &str) -> Vec<u8> {
        let wit = format!(
            "package bindery:policy@0.1.0;
             interface cluster {{ ask: func() -> u32; }}
             interface decide {{ sync: func() -> u32; }}
             world engine {{ {world} }}"
        );
        let mut resolve = Resolve::default();
        let package = resolve.push_str("test.wit", &wit).unwrap();
        let world = resolve.select_world(&[package], None).unwrap();
        let mut module = wit_component::dummy_module(&resolve, world, ManglingAndAbi::Standard32);
        wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)
            .unwrap();
        module
    }

    #[test]
    fn a_module_of_the_contract_becomes_a_component() {
        let bytes = component(&module("import cluster; export decide;")).unwrap();
        // The preamble of a component differs from a module's in its layer field.
        assert!(bytes.starts_with(b"\0asm") && bytes[6..8] == [1, 0]);
    }

    #[test]
    fn a_module_that_breaks_the_contract_is_refused() {
        assert!(component(b"no wasm").is_err());
        for (world, why) in [
            ("import cluster; import now: func() -> u64; export decide;", "imports now;"),
            ("import cluster;", "exports nothing"),
        ] {
            let error = component(&module(world)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
