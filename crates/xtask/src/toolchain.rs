//! A Rust toolchain that can compile for another target than this machine's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::tools::debian;
use crate::{process, workspace};

/// What is compiled for.
pub(crate) struct Target {
    /// Its name, as compilers have it.
    pub(crate) triple: &'static str,
    /// The crates of the standard library that are built where no toolchain brings them.
    pub(crate) standard_library: &'static str,
}

/// Debian's packages of a Rust that is new enough, with the standard library's source.
const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

/// Which Rust compiles.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Toolchain {
    /// The one that builds everything else, with a standard library for the target.
    Active,
    /// Debian's, which builds the standard library from its source; for where rustup cannot get targets.
    Debian,
}

impl Toolchain {
    /// The active toolchain where it has the target or rustup can add it, else Debian's.
    ///
    /// # Errors
    /// When neither can be had; the error says what to do.
    pub(crate) fn choose(target: &Target) -> Result<Self> {
        if has_target(target)? || add_target(target)? {
            return Ok(Self::Active);
        }
        eprintln!("rustup cannot add the target {}: building with Debian's Rust", target.triple);
        Self::Debian.installed(target)
    }

    /// This toolchain, installed first where that is possible.
    ///
    /// # Errors
    /// When it is missing and cannot be installed; the error says what to do.
    pub(crate) fn installed(self, target: &Target) -> Result<Self> {
        let triple = target.triple;
        match self {
            Self::Active if has_target(target)? || add_target(target)? => {}
            Self::Active => bail!("the active toolchain lacks the target: `rustup target add {triple}`"),
            Self::Debian => {
                let purpose = format!("no Rust for {triple}, which `rustup target add {triple}` would bring");
                debian::install(&DEBIAN_PACKAGES, &purpose)?;
            }
        }
        Ok(self)
    }

    /// The compiler's name and version, in full.
    pub(crate) fn version(self) -> Result<String> {
        process::output(Command::new(self.rustc()).arg("-vV").current_dir(workspace::root()))
    }

    /// The file with the terms of its standard library.
    ///
    /// # Errors
    /// When the compiler does not tell where it is.
    pub(crate) fn library_terms(self) -> Result<PathBuf> {
        Ok(match self {
            Self::Active => Path::new(&active_rustc(&["--print", "sysroot"])?)
                .join("share/doc/rust/COPYRIGHT-library.html"),
            Self::Debian => "/usr/share/doc/rustc-web/copyright".into(),
        })
    }

    /// Has a command, which is cargo or calls it, compile for the target by this toolchain. The target is
    /// among its arguments.
    pub(crate) fn compile(self, command: &mut Command, target: &Target) {
        command.current_dir(workspace::root()).args(["--target", target.triple]);
        if matches!(self, Self::Debian) {
            command.env("CARGO", self.cargo()).env("RUSTC", self.rustc()).env("RUSTC_BOOTSTRAP", "1");
            command.arg(format!("-Zbuild-std={}", target.standard_library));
            // Set by the cargo that runs us, to libraries of the other toolchain.
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

/// What the active compiler prints of itself.
fn active_rustc(arguments: &[&str]) -> Result<String> {
    let printed = process::output(Command::new("rustc").args(arguments).current_dir(workspace::root()))?;
    Ok(printed.trim_end().to_owned())
}

fn has_target(target: &Target) -> Result<bool> {
    let libraries = active_rustc(&["--print", "target-libdir", "--target", target.triple])?;
    Ok(Path::new(&libraries).is_dir())
}

/// Whether rustup added the target; that it did not is no error, there is another way.
fn add_target(target: &Target) -> Result<bool> {
    if !process::exists("rustup", "--version")? {
        return Ok(false);
    }
    eprintln!("adding the target {} to the active toolchain", target.triple);
    let added = process::run(
        Command::new("rustup").args(["target", "add", target.triple]).current_dir(workspace::root()),
    );
    Ok(added.is_ok())
}

/// The linker of LLVM that the active toolchain brings.
///
/// # Errors
/// When it is missing; the error says what to do.
pub(crate) fn lld() -> Result<PathBuf> {
    let version = active_rustc(&["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let sysroot = active_rustc(&["--print", "sysroot"])?;
    let linker = Path::new(&sysroot).join("lib/rustlib").join(host).join("bin/rust-lld");
    if !linker.is_file() {
        bail!("{} is missing: install the toolchain of rust-toolchain.toml with rustup", linker.display());
    }
    Ok(linker)
}
