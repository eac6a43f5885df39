//! A Rust toolchain that can compile for another target than this machine's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::tools::debian;
use crate::{process, workspace};

/// A target of the compiler.
pub(crate) struct Target {
    /// Its triple.
    pub(crate) triple: &'static str,
    /// The crates of the standard library that Debian's toolchain builds for it.
    pub(crate) standard_library: &'static str,
}

/// Debian's packages of a Rust that is new enough, with the standard library's source.
const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

/// The Rust that compiles.
#[derive(Clone, Copy)]
pub(crate) enum Toolchain {
    /// The one that builds everything else, with a standard library for the target.
    Active,
    /// Debian's, which builds the standard library from source; for machines where rustup cannot add targets.
    Debian,
}

impl Toolchain {
    /// The active toolchain if it has the target or rustup can add it, else Debian's.
    pub(crate) fn choose(target: &Target) -> Result<Self> {
        if has_target(target)? || add_target(target)? {
            return Ok(Self::Active);
        }
        let triple = target.triple;
        eprintln!("rustup cannot add the target {triple}: building with Debian's Rust");
        let purpose = format!("no Rust for {triple}, which `rustup target add {triple}` would bring");
        debian::install(&DEBIAN_PACKAGES, &purpose)?;
        Ok(Self::Debian)
    }

    /// The compiler's full version.
    pub(crate) fn version(self) -> Result<String> {
        process::output(Command::new(self.rustc()).arg("-vV").current_dir(workspace::root()))
    }

    /// The file with the licences of its standard library.
    pub(crate) fn library_terms(self) -> Result<PathBuf> {
        Ok(match self {
            Self::Active => Path::new(&active_rustc(&["--print", "sysroot"])?)
                .join("share/doc/rust/COPYRIGHT-library.html"),
            Self::Debian => "/usr/share/doc/rustc-web/copyright".into(),
        })
    }

    /// Has a command, which is cargo or calls it, compile for the target by this toolchain.
    pub(crate) fn compile(self, command: &mut Command, target: &Target) {
        command.current_dir(workspace::root()).args(["--target", target.triple]);
        if matches!(self, Self::Debian) {
            command.env("CARGO", self.cargo()).env("RUSTC", self.rustc()).env("RUSTC_BOOTSTRAP", "1");
            command.arg(format!("-Zbuild-std={}", target.standard_library));
            // The cargo that runs us has set it, to libraries of the other toolchain.
            command.env_remove("LD_LIBRARY_PATH");
        }
    }

    /// This toolchain's cargo.
    pub(crate) fn cargo(self) -> OsString {
        match self {
            Self::Active => workspace::cargo().get_program().to_owned(),
            Self::Debian => "/usr/bin/cargo".into(),
        }
    }

    fn rustc(self) -> &'static str {
        match self {
            Self::Active => "rustc",
            Self::Debian => "/usr/bin/rustc",
        }
    }
}

/// The output of the active compiler.
fn active_rustc(arguments: &[&str]) -> Result<String> {
    let printed = process::output(Command::new("rustc").args(arguments).current_dir(workspace::root()))?;
    Ok(printed.trim_end().to_owned())
}

/// The target of this machine.
pub(crate) fn host() -> Result<String> {
    let version = active_rustc(&["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

fn has_target(target: &Target) -> Result<bool> {
    let libraries = active_rustc(&["--print", "target-libdir", "--target", target.triple])?;
    Ok(Path::new(&libraries).is_dir())
}

/// Whether rustup added the target. A failure is not an error, since Debian's toolchain is another way.
fn add_target(target: &Target) -> Result<bool> {
    if !process::exists("rustup", "--version")? {
        return Ok(false);
    }
    eprintln!("adding the target {} to the active toolchain", target.triple);
    let mut add = Command::new("rustup");
    Ok(process::run(add.args(["target", "add", target.triple]).current_dir(workspace::root())).is_ok())
}

/// The LLVM linker of the active toolchain.
pub(crate) fn lld() -> Result<PathBuf> {
    let sysroot = active_rustc(&["--print", "sysroot"])?;
    let linker = Path::new(&sysroot).join("lib/rustlib").join(host()?).join("bin/rust-lld");
    if !linker.is_file() {
        bail!("{} is missing: install the toolchain of rust-toolchain.toml with rustup", linker.display());
    }
    Ok(linker)
}
