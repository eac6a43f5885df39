//! A Rust toolchain that can compile for WebAssembly without WASI.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::tools::debian;
use crate::{process, workspace};

/// The target without any system interface: a component compiled for it imports only what its contract names.
pub(super) const TARGET: &str = "wasm32-unknown-unknown";

/// Debian's packages of a Rust that is new enough, with the standard library's source.
const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

/// Which Rust compiles the component.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Toolchain {
    /// The one that builds everything else, with a standard library for the target.
    Active,
    /// Debian's, which builds the standard library from its source; for where rustup cannot get targets.
    Debian,
}

impl Toolchain {
    /// The active toolchain where it has the target or rustup can add it, else Debian's.
    pub(super) fn choose() -> Result<Self> {
        if has_target()? || add_target()? {
            return Ok(Self::Active);
        }
        eprintln!("rustup cannot add the target {TARGET}: building with Debian's Rust");
        Self::Debian.installed()
    }

    /// This toolchain, installed first where that is possible.
    ///
    /// # Errors
    /// When it is missing and cannot be installed; the error says what to do.
    pub(super) fn installed(self) -> Result<Self> {
        match self {
            Self::Active if has_target()? || add_target()? => {}
            Self::Active => bail!("the active toolchain lacks the target: `rustup target add {TARGET}`"),
            Self::Debian => {
                let purpose = format!("no Rust for {TARGET}, which `rustup target add {TARGET}` would bring");
                debian::install(&DEBIAN_PACKAGES, &purpose)?;
            }
        }
        Ok(self)
    }

    /// The compiler's name and version, in full.
    pub(super) fn version(self) -> Result<String> {
        process::output(Command::new(self.rustc()).arg("-vV").current_dir(workspace::root()))
    }

    /// A cargo of this toolchain, to be given the command, the target included.
    pub(super) fn cargo(self) -> Result<Command> {
        match self {
            Self::Active => Ok(workspace::cargo()),
            Self::Debian => {
                let mut command = Command::new("/usr/bin/cargo");
                command.current_dir(workspace::root()).env("RUSTC", self.rustc());
                command.env("RUSTC_BOOTSTRAP", "1").arg("-Zbuild-std=std,panic_abort");
                command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker()?);
                // Set by the cargo that runs us, to libraries of the other toolchain.
                command.env_remove("LD_LIBRARY_PATH");
                Ok(command)
            }
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

fn has_target() -> Result<bool> {
    let libraries = active_rustc(&["--print", "target-libdir", "--target", TARGET])?;
    Ok(Path::new(&libraries).is_dir())
}

/// Whether rustup added the target; that it did not is no error, there is another way.
fn add_target() -> Result<bool> {
    if !process::exists("rustup", "--version")? {
        return Ok(false);
    }
    eprintln!("adding the target {TARGET} to the active toolchain");
    let added =
        process::run(Command::new("rustup").args(["target", "add", TARGET]).current_dir(workspace::root()));
    Ok(added.is_ok())
}

/// The active toolchain's linker: Debian's packages bring none for WebAssembly.
fn linker() -> Result<PathBuf> {
    let version = active_rustc(&["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let sysroot = active_rustc(&["--print", "sysroot"])?;
    let linker = Path::new(&sysroot).join("lib/rustlib").join(host).join("bin/rust-lld");
    if !linker.is_file() {
        bail!("{} is missing: install the toolchain of rust-toolchain.toml with rustup", linker.display());
    }
    Ok(linker)
}
