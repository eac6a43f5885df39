//! The default engine as a WebAssembly component: built, encoded, checked, and put where everything finds it.
//!
//! The crate `bindery-component` is compiled to a core module for `wasm32-unknown-unknown`, a target without
//! WASI, and `wit-component` turns the module into a component by the interface description that
//! `wit-bindgen` left in it. Nothing is done where the content of all inputs is what it was.
//!
//! Other programs get the component's path in `BINDERY_ENGINE` or as `--engine FILE`.

mod encode;
mod inputs;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::toolchain::{self, Target, Toolchain};
use crate::{process, workspace};

/// The target without any system interface: a component compiled for it imports only what its contract names.
const TARGET: Target = Target { triple: "wasm32-unknown-unknown", standard_library: "std,panic_abort" };

/// The package that is compiled.
const PACKAGE: &str = "bindery-component";

/// The component's pages are touched for every decision, so both are small. What a decision needs beyond this
/// is allocated by growing the memory.
const LINKER_ARGUMENTS: [&str; 2] = ["-zstack-size=65536", "--initial-memory=262144"];

/// Build the default engine's component and print its path, size and digest.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The toolchain to build with; by default the active one where it has or can get the wasm target, else
    /// Debian's.
    #[arg(long, value_enum)]
    toolchain: Option<Toolchain>,
}

/// Carries out `cargo xtask components`.
///
/// # Errors
/// As [`build`].
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let path = build_with(arguments.toolchain)?;
    crate::say(format_args!("{}", description(&path)?));
    Ok(())
}

/// Where the default engine's component lies: `components/bindery-engine.wasm` in cargo's target folder.
///
/// # Errors
/// When cargo cannot say where its target folder is.
pub(crate) fn path() -> Result<PathBuf> {
    Ok(workspace::target_folder()?.join("components/bindery-engine.wasm"))
}

/// Brings the component up to date and returns its path.
///
/// # Errors
/// When no toolchain for the wasm target can be had (the error says what to install), when the crate does not
/// compile, or when it imports anything but the interfaces of its contract.
pub(crate) fn build() -> Result<PathBuf> {
    build_with(None)
}

/// The component's path, size and SHA-256.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn description(path: &Path) -> Result<String> {
    let component = workspace::read(path)?;
    Ok(format!("{}: {} bytes, sha256 {}", path.display(), component.len(), workspace::sha256(&component)))
}

fn build_with(toolchain: Option<Toolchain>) -> Result<PathBuf> {
    let path = path()?;
    let folder = path.parent().context("the component's path must have a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let lock_path = folder.join(".lock");
    let lock = File::create(&lock_path).with_context(|| format!("cannot create {}", lock_path.display()))?;
    lock.lock().with_context(|| format!("cannot lock {}", lock_path.display()))?;

    let toolchain = match toolchain {
        Some(toolchain) => toolchain.installed(&TARGET)?,
        None => Toolchain::choose(&TARGET)?,
    };
    let key = inputs::key(PACKAGE, [toolchain.version()?, LINKER_ARGUMENTS.join(" ")])?;
    let stamp = path.with_extension("key");
    if path.is_file() && fs::read_to_string(&stamp).is_ok_and(|stamped| stamped == key) {
        return Ok(path);
    }
    let module = compile(toolchain)?;
    let bytes = workspace::read(&module)?;
    let component = encode::component(&bytes)
        .with_context(|| format!("{} does not make a component of the contract", module.display()))?;
    // The stamp is written last, and not left standing beside a component that it does not describe.
    let _ = fs::remove_file(&stamp);
    workspace::replace(&path, &component)?;
    workspace::replace(&stamp, key.as_bytes())?;
    Ok(path)
}

/// Compiles the package to a core module and returns the module's path.
fn compile(toolchain: Toolchain) -> Result<PathBuf> {
    // A folder of its own: another compiler's artefacts would keep evicting the workspace's.
    let target = workspace::target_folder()?.join("component-build");
    let mut command = Command::new(toolchain.cargo());
    // Named here rather than in the manifest, which also offers an rlib, because cargo skips LTO where there
    // is one.
    command.args([
        "rustc",
        "--package",
        PACKAGE,
        "--lib",
        "--crate-type",
        "cdylib",
        "--profile",
        "component",
    ]);
    command.arg("--target-dir").arg(&target);
    toolchain.compile(&mut command, &TARGET);
    if matches!(toolchain, Toolchain::Debian) {
        // Its packages bring none for WebAssembly.
        command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", toolchain::lld()?);
    }
    command.env("CARGO_ENCODED_RUSTFLAGS", rust_flags()?.join("\u{1f}"));
    process::run(&mut command)?;
    Ok(target.join(TARGET.triple).join("component").join(format!("{}.wasm", PACKAGE.replace('-', "_"))))
}

/// The compiler's flags.
fn rust_flags() -> Result<Vec<String>> {
    let linker = LINKER_ARGUMENTS.iter().map(|argument| format!("-Clink-arg={argument}"));
    Ok(linker.chain([workspace::path_flag()?]).collect())
}
