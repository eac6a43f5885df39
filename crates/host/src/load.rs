//! Checks a component before it may decide: that it is one, is made for a supported version, and imports
//! nothing outside its world.

use std::path::PathBuf;

use semver::Version;
use wasmtime::Engine;
use wasmtime::component::Component;

/// Why an engine is not loaded. One sentence each, with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("the engine {path} cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is larger than any engine may be.
    #[error("the engine has more than {max} bytes, which is the limit")]
    TooLarge {
        /// The limit in bytes.
        max: usize,
    },
    /// It is not WebAssembly.
    #[error(
        "the engine is not WebAssembly: it does not begin with the bytes \\0asm; \
         give the .wasm file of a component"
    )]
    NotWasm,
    /// It ends within a section.
    #[error(
        "the engine is truncated: it ends after {bytes} bytes, in the middle of a section; fetch it again"
    )]
    Truncated {
        /// Its size in bytes.
        bytes: usize,
    },
    /// It is a core module.
    #[error(
        "the engine is a core module, not a component; make a component of it with `wasm-tools component new`"
    )]
    CoreModule,
    /// It is invalid, or needs a feature of WebAssembly that is off.
    #[error("the engine is not a valid component: {0}")]
    Invalid(String),
    /// It imports something outside its world.
    #[error(
        "the engine imports {}, which is outside its world; build it without WASI, \
         for a target such as wasm32-unknown-unknown",
        .0.join(", ")
    )]
    ForeignImports(Vec<String>),
    /// It does not export `bindery:policy/decide`.
    #[error(
        "the engine does not export bindery:policy/decide but {}; \
         build it for the world `engine` of bindery:policy",
        if .0.is_empty() { "nothing".to_owned() } else { .0.join(", ") }
    )]
    NoEngine(Vec<String>),
    /// It is made for a version of the contract that this host does not support.
    #[error(
        "the engine is made for {found}; this host serves bindery:policy {served}: \
         rebuild it against one of these"
    )]
    UnsupportedVersion {
        /// The import or export with that version.
        found: String,
        /// The supported versions.
        served: String,
    },
    /// An import or export has the right name and another type.
    #[error("the engine does not fit the contract it names: {0}")]
    Mismatch(String),
}

/// Supported versions of the contract, as `major.minor`, newest first. Each has a bindings module.
pub(crate) const SERVED: [(u64, u64); 1] = [(0, 1)];

/// Interfaces of the contract that an engine may import.
const OFFERED: [&str; 4] = ["actions", "cluster", "events", "types"];
const PACKAGE: &str = "bindery:policy/";
const EXPORT: &str = "decide";

/// Checks by its headers that the bytes are a whole component.
pub(crate) fn check_shape(bytes: &[u8]) -> Result<(), LoadError> {
    if !bytes.starts_with(b"\0asm") {
        return Err(LoadError::NotWasm);
    }
    let truncated = LoadError::Truncated { bytes: bytes.len() };
    match bytes.get(4..8) {
        None => return Err(truncated),
        // Version 1, layer 0: a core module. Layer 1 is a component, whose version the compiler checks.
        Some([_, _, 0, 0]) => return Err(LoadError::CoreModule),
        Some(_) => {}
    }
    let mut rest = &bytes[8..];
    while let [_, after_id @ ..] = rest {
        let Some((size, content)) = read_leb(after_id) else { return Err(truncated) };
        let Some(next) = content.get(size..) else { return Err(truncated) };
        rest = next;
    }
    Ok(())
}

/// An unsigned LEB128 number of 32 bits and what follows it.
fn read_leb(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0_usize;
    for (at, byte) in bytes.iter().enumerate().take(5) {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

/// Checks imports and exports by name and version.
pub(crate) fn check_world(engine: &Engine, component: &Component) -> Result<(), LoadError> {
    let ty = component.component_type();
    let imports: Vec<&str> = ty.imports(engine).map(|(name, _)| name).collect();
    let foreign: Vec<String> =
        imports.iter().filter(|name| !is_offered(name)).map(|name| (*name).to_owned()).collect();
    if !foreign.is_empty() {
        return Err(LoadError::ForeignImports(foreign));
    }
    let exports: Vec<&str> = ty.exports(engine).map(|(name, _)| name).collect();
    let export = exports
        .iter()
        .find(|name| part(name).is_some_and(|(interface, _)| interface == EXPORT))
        .ok_or_else(|| LoadError::NoEngine(exports.iter().map(|name| (*name).to_owned()).collect()))?;
    let version = version_of(export)?;
    for import in imports {
        if version_of(import)? != version {
            return Err(LoadError::Mismatch(format!("it exports {export} and imports {import}")));
        }
    }
    Ok(())
}

/// Interface and version of a name of the contract, such as `bindery:policy/cluster@0.1.0`.
fn part(name: &str) -> Option<(&str, Option<Version>)> {
    let name = name.strip_prefix(PACKAGE)?;
    let (interface, version) = name.split_once('@').unwrap_or((name, ""));
    Some((interface, Version::parse(version).ok()))
}

fn is_offered(name: &str) -> bool {
    part(name).is_some_and(|(interface, _)| OFFERED.contains(&interface))
}

/// The version of the contract that a name belongs to, where it is supported.
fn version_of(name: &str) -> Result<(u64, u64), LoadError> {
    part(name)
        .and_then(|(_, version)| version)
        .map(|version| (version.major, version.minor))
        .filter(|version| SERVED.contains(version))
        .ok_or_else(|| LoadError::UnsupportedVersion {
            found: name.to_owned(),
            served: SERVED.map(|(major, minor)| format!("{major}.{minor}")).join(" and "),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_wrong_file_has_its_own_error() {
        let component = b"\0asm\x0d\0\x01\0";
        let section = |size: u8, there: usize| [&component[..], &[0, size], &vec![0; there][..]].concat();
        assert!(check_shape(component).is_ok());
        assert!(check_shape(&section(3, 3)).is_ok());
        for truncated in [&component[..6], &section(3, 2), &section(0x80, 0)] {
            assert!(matches!(check_shape(truncated), Err(LoadError::Truncated { .. })), "{truncated:?}");
        }
        assert!(matches!(check_shape(b"\0asm\x01\0\0\0"), Err(LoadError::CoreModule)));
        for other in [&b""[..], b"\0as", b"#!/bin/sh\n"] {
            assert!(matches!(check_shape(other), Err(LoadError::NotWasm)), "{other:?}");
        }
    }

    #[test]
    fn an_engine_is_served_by_its_minor_version() {
        assert_eq!(version_of("bindery:policy/decide@0.1.0").unwrap(), (0, 1));
        assert_eq!(version_of("bindery:policy/decide@0.1.7").unwrap(), (0, 1));
        for other in ["bindery:policy/decide@0.2.0", "bindery:policy/decide@1.0.0", "bindery:policy/decide"] {
            let error = version_of(other).unwrap_err().to_string();
            assert!(error.contains(other) && error.contains("0.1"), "{error}");
        }
    }
}
