//! From a core module to a component that imports its contract and nothing else.

use anyhow::{Context as _, Result, bail};
use wit_component::{ComponentEncoder, DecodedWasm};
use wit_parser::{Resolve, World, WorldItem, WorldKey};

/// What every import's name must begin with.
const CONTRACT: &str = "bindery:policy/";

/// Encodes a module that `wit-bindgen` made.
///
/// # Errors
/// When the module is not one, exports nothing of a world, or imports anything outside the contract.
pub(super) fn component(module: &[u8]) -> Result<Vec<u8>> {
    let component = ComponentEncoder::default().validate(true).module(module)?.encode()?;
    check(&component)?;
    Ok(component)
}

fn check(component: &[u8]) -> Result<()> {
    let DecodedWasm::Component(resolve, world) = wit_component::decode(component)? else {
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
    Ok(())
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

    /// A module that does nothing, as a world asks for it.
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
        let component = component(&module("import cluster; export decide;")).unwrap();
        assert!(is_component(&component));
    }

    #[test]
    fn an_import_outside_the_contract_is_refused_by_name() {
        let error =
            component(&module("import cluster; import now: func() -> u64; export decide;")).unwrap_err();
        assert!(error.to_string().contains("imports now;"), "{error}");
    }

    #[test]
    fn a_module_without_exports_is_refused() {
        let error = component(&module("import cluster;")).unwrap_err();
        assert!(error.to_string().contains("exports nothing"), "{error}");
    }

    #[test]
    fn what_is_no_module_is_refused() {
        assert!(component(b"no wasm").is_err());
    }

    /// The preamble of a component differs from a module's in its layer field.
    fn is_component(bytes: &[u8]) -> bool {
        bytes.starts_with(b"\0asm") && bytes[6..8] == [1, 0]
    }
}
