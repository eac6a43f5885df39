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
