//! Checks a component before it may decide: that it is one, is made for a supported version, and imports
//! nothing outside its world.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use semver::Version;
use wasmtime::component::Component;
use wasmtime::{Engine, OutOfMemory, PoolConcurrencyLimitError};

/// What the kernel says where memory, room or open files lack.
const LACKS: [Errno; 5] = [Errno::NOMEM, Errno::AGAIN, Errno::NOSPC, Errno::MFILE, Errno::NFILE];

/// Why an engine or a policy is not loaded. One sentence each, with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("the component {path} cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is larger than any component of its world may be.
    #[error("the component has more than {max} bytes, which is the limit")]
    TooLarge {
        /// The limit in bytes.
        max: usize,
    },
    /// It is not WebAssembly.
    #[error(
        "the component is not WebAssembly: it does not begin with the bytes \\0asm; \
         give the .wasm file of a component"
    )]
    NotWasm,
    /// It ends within a section.
    #[error(
        "the component is truncated: it ends after {bytes} bytes, in the middle of a section; fetch it again"
    )]
    Truncated {
        /// Its size in bytes.
        bytes: usize,
    },
    /// It is a core module.
    #[error(
        "the component is a core module, not a component; make a component of it with \
         `wasm-tools component new`"
    )]
    CoreModule,
    /// It is invalid, or needs a feature of WebAssembly that is off.
    #[error("the component is not a valid component: {0}")]
    Invalid(String),
    /// It imports something outside its world.
    #[error(
        "the component imports {}, which is outside its world; build it without WASI: Rust for the target \
         wasm32-unknown-unknown, JavaScript with all of `disableFeatures` of componentize-js, Python with \
         `--stub-wasi` of componentize-py",
        .0.join(", ")
    )]
    ForeignImports(Vec<String>),
    /// It does not export the interface of its world.
    #[error(
        "the component does not export bindery:policy/{export} but {}; \
         build it for the world `{world}` of bindery:policy",
        if found.is_empty() { "nothing".to_owned() } else { found.join(", ") }
    )]
    NoExport {
        /// The interface that it should export.
        export: &'static str,
        /// The world that it should be built for.
        world: &'static str,
        /// What it exports.
        found: Vec<String>,
    },
    /// It is made for a version of the contract that this host does not support.
    #[error(
        "the component is made for {found}; this host serves bindery:policy {served}: \
         rebuild it against one of these"
    )]
    UnsupportedVersion {
        /// The import or export with that version.
        found: String,
        /// The supported versions.
        served: String,
    },
    /// What a policy says about itself breaks a rule.
    #[error("the metadata of the policy is wrong: {0}")]
    Metadata(String),
    /// The machine lacks memory, room or open files. It may not later.
    #[error("the component cannot be loaded now: {0}; free memory, room or open files, or try again")]
    Unavailable(String),
    /// The cache does not keep what was compiled.
    #[error("the compiled component is not kept: {0}; give the cache more room, or use fewer components")]
    NotKept(std::io::Error),
    /// An import or export has the right name and another type.
    #[error("the component does not fit the contract it names: {0}")]
    Mismatch(String),
}

impl LoadError {
    /// This error for one of wasmtime, unless the machine is at fault.
    pub(crate) fn of(error: &wasmtime::Error, fault: fn(String) -> Self) -> Self {
        let why = format!("{error:#}");
        if is_of_machine(error) { Self::Unavailable(why) } else { fault(why) }
    }
}

/// Whether the machine or the pool lacked something, so that the same component may work later.
pub(crate) fn is_of_machine(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| {
        let of_io = cause.downcast_ref::<io::Error>();
        let errno = cause.downcast_ref::<Errno>().copied().or_else(|| of_io.and_then(Errno::from_io_error));
        errno.is_some_and(|errno| LACKS.contains(&errno))
            || of_io.is_some_and(|error| error.kind() == io::ErrorKind::OutOfMemory)
            || cause.is::<OutOfMemory>()
            || cause.is::<PoolConcurrencyLimitError>()
    })
}

/// A world of the contract, as this host serves it.
pub(crate) struct World {
    /// Its name.
    name: &'static str,
    /// The interface that its components export.
    export: &'static str,
    /// The interfaces that they may import.
    offered: &'static [&'static str],
    /// The supported versions, as `major.minor`, newest first. Each has a bindings module.
    served: &'static [(u64, u64)],
}

pub(crate) const ENGINE: World = World {
    name: "engine",
    export: "decide",
    offered: &["actions", "cluster", "events", "types"],
    served: &[(0, 2), (0, 1)],
};
pub(crate) const MATCHER: World =
    World { name: "matcher", export: "match", offered: &["facts"], served: &[(0, 2)] };
pub(crate) const RECLAIMER: World =
    World { name: "reclaimer", export: "reclaim", offered: &["facts"], served: &[(0, 2)] };

const PACKAGE: &str = "bindery:policy/";

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

impl World {
    /// Checks imports and exports by name and version, and returns the version, as `major.minor`.
    pub(crate) fn check(&self, engine: &Engine, component: &Component) -> Result<(u64, u64), LoadError> {
        let ty = component.component_type();
        let imports: Vec<&str> = ty.imports(engine).map(|(name, _)| name).collect();
        let foreign: Vec<String> =
            imports.iter().filter(|name| !self.offers(name)).map(|name| (*name).to_owned()).collect();
        if !foreign.is_empty() {
            return Err(LoadError::ForeignImports(foreign));
        }
        let exports: Vec<&str> = ty.exports(engine).map(|(name, _)| name).collect();
        let export = exports
            .iter()
            .find(|name| part(name).is_some_and(|(interface, _)| interface == self.export))
            .ok_or_else(|| LoadError::NoExport {
                export: self.export,
                world: self.name,
                found: exports.iter().map(|name| (*name).to_owned()).collect(),
            })?;
        let version = self.version_of(export)?;
        for import in imports {
            if self.version_of(import)? != version {
                return Err(LoadError::Mismatch(format!("it exports {export} and imports {import}")));
            }
        }
        Ok(version)
    }

    /// Whether the component exports the interface of this world, of any version.
    pub(crate) fn is_exported(&self, engine: &Engine, component: &Component) -> bool {
        let ty = component.component_type();
        ty.exports(engine).any(|(name, _)| part(name).is_some_and(|(interface, _)| interface == self.export))
    }

    fn offers(&self, name: &str) -> bool {
        part(name).is_some_and(|(interface, _)| self.offered.contains(&interface))
    }

    /// The version of the contract that a name belongs to, where it is supported.
    fn version_of(&self, name: &str) -> Result<(u64, u64), LoadError> {
        let served = |(major, minor): &(u64, u64)| format!("{major}.{minor}");
        part(name)
            .and_then(|(_, version)| version)
            .map(|version| (version.major, version.minor))
            .filter(|version| self.served.contains(version))
            .ok_or_else(|| LoadError::UnsupportedVersion {
                found: name.to_owned(),
                served: self.served.iter().map(served).collect::<Vec<_>>().join(" and "),
            })
    }
}

/// Interface and version of a name of the contract, such as `bindery:policy/cluster@0.1.0`.
fn part(name: &str) -> Option<(&str, Option<Version>)> {
    let name = name.strip_prefix(PACKAGE)?;
    let (interface, version) = name.split_once('@').unwrap_or((name, ""));
    Some((interface, Version::parse(version).ok()))
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
    fn what_the_machine_lacks_is_no_fault_of_the_component() {
        let told = |error: wasmtime::Error| LoadError::of(&error, LoadError::Invalid);
        for lacks in [
            wasmtime::Error::new(Errno::NOMEM),
            wasmtime::Error::new(Errno::AGAIN).context("it cannot be mapped"),
            wasmtime::Error::new(io::Error::from(Errno::MFILE)).context("it cannot be mapped"),
            wasmtime::Error::new(io::Error::from(io::ErrorKind::OutOfMemory)),
        ] {
            assert!(matches!(told(lacks), LoadError::Unavailable(why) if !why.is_empty()));
        }
        for other in [
            wasmtime::Error::new(Errno::INVAL),
            wasmtime::Error::new(io::Error::from(Errno::ACCESS)),
            // A text proves nothing: a component may have it in a name.
            wasmtime::Error::msg(Errno::NOMEM.to_string()),
        ] {
            assert!(matches!(told(other), LoadError::Invalid(_)));
        }
    }

    #[test]
    fn an_engine_is_served_by_its_minor_version() {
        assert_eq!(ENGINE.version_of("bindery:policy/decide@0.1.0").unwrap(), (0, 1));
        assert_eq!(ENGINE.version_of("bindery:policy/decide@0.1.7").unwrap(), (0, 1));
        assert_eq!(ENGINE.version_of("bindery:policy/decide@0.2.0").unwrap(), (0, 2));
        for other in ["bindery:policy/decide@0.3.0", "bindery:policy/decide@1.0.0", "bindery:policy/decide"] {
            let error = ENGINE.version_of(other).unwrap_err().to_string();
            assert!(error.contains(other) && error.contains("0.2 and 0.1"), "{error}");
        }
    }
}
