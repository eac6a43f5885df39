//! The components of `components/`, built for tests.

use std::path::{Path, PathBuf};

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The folder of their sources, whichever package this file is compiled into.
pub(crate) fn folder() -> PathBuf {
    checkout().join("tests/components")
}

/// The bytes of a component: its core module is spliced into the skeleton, unless the source is whole.
///
/// # Panics
///
/// The source does not exist, or is not WebAssembly text.
pub(crate) fn built(name: &str) -> Vec<u8> {
    let text = |name: &str| {
        let path = folder().join(format!("{name}.wat"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let source = text(name);
    if source.contains("\n(component") || source.contains("\n(module") {
        return wat::parse_str(&source).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let mut module = wat::parse_str(format!("(module\n{source}\n{})", text("skeleton")))
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(checkout().join("wit/0.1")).expect("wit/0.1 parses");
    let world = resolve.select_world(&[package], Some("engine")).expect("wit/ has the world engine");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)
        .expect("the module takes a custom section");
    let encoded =
        ComponentEncoder::default().module(&module).expect("the module has the world's types").encode();
    encoded.expect("the module makes a component")
}

fn checkout() -> &'static Path {
    Path::new(env!("BINDERY_CHECKOUT"))
}
