//! The default engine, the engine of an example, and the policies that ship, as WebAssembly components.
//!
//! A crate is compiled to a core module for `wasm32-unknown-unknown`, a target without WASI. `wit-component`
//! turns the module into a component, using the interface description that `wit-bindgen` left in it. Nothing
//! is built if the content of all inputs is unchanged.
//!
//! Other programs get the engine's path in `BINDERY_ENGINE` or as `--engine FILE`, and the folder of the
//! policies in `BINDERY_POLICIES`.

mod encode;
mod inputs;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::toolchain::{self, Target, Toolchain};
use crate::{process, timing, workspace};

/// A target without a system interface: a component compiled for it imports only what its contract names.
const TARGET: Target = Target { triple: "wasm32-unknown-unknown", standard_library: "std,panic_abort" };

/// The package of the default engine.
const ENGINE: &str = "bindery-component";

/// The package of an engine of one's own: `examples/engine-worst-fit`.
const EXAMPLE: &str = "engine-worst-fit";

/// The policies that ship: packages in `policies/`.
pub(crate) const POLICIES: [&str; 7] =
    ["at-most-n-times", "delete-after", "keep-labelled", "prefer", "reserved", "same-zone", "spread"];

/// The policy of a benchmark.
const BENCH_POLICY: &str = "bindery-bench-policy";

/// Every decision touches the component's initial pages, so stack and memory are small. A decision that needs
/// more grows the memory.
const LINKER_ARGUMENTS: [&str; 2] = ["-zstack-size=65536", "--initial-memory=262144"];

/// Carries out `cargo xtask components`.
pub(crate) fn run() -> Result<()> {
    let policies = policies()?;
    let policies = POLICIES.iter().map(|name| policies.join(format!("{name}.wasm")));
    for path in [build()?, example()?].into_iter().chain(policies) {
        crate::say(format_args!("{}", description(&path)?));
    }
    Ok(())
}

/// A component's path, size and SHA-256.
pub(crate) fn description(path: &Path) -> Result<String> {
    let component = workspace::read(path)?;
    Ok(format!("{}: {} bytes, sha256 {}", path.display(), component.len(), workspace::sha256(&component)))
}

/// Builds the default engine if it is not up to date, and returns its path: `components/bindery-engine.wasm`
/// in cargo's target folder.
pub(crate) fn build() -> Result<PathBuf> {
    build_package(ENGINE, "bindery-engine")
}

/// Builds the engine of the example, and returns its path.
pub(crate) fn example() -> Result<PathBuf> {
    build_package(EXAMPLE, EXAMPLE)
}

/// Builds the policies that are not up to date, and returns their folder: `components` in cargo's target
/// folder.
pub(crate) fn policies() -> Result<PathBuf> {
    for name in POLICIES {
        build_package(name, name)?;
    }
    folder()
}

/// Builds the policy of a benchmark, and returns its path.
pub(crate) fn bench_policy() -> Result<PathBuf> {
    build_package(BENCH_POLICY, BENCH_POLICY)
}

fn folder() -> Result<PathBuf> {
    Ok(workspace::target_folder()?.join("components"))
}

/// Builds a package as the component `NAME.wasm` if it is not up to date, and returns its path.
fn build_package(package: &str, name: &str) -> Result<PathBuf> {
    let folder = folder()?;
    let path = folder.join(format!("{name}.wasm"));
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let lock_path = folder.join(".lock");
    let lock = File::create(&lock_path).with_context(|| format!("cannot create {}", lock_path.display()))?;
    lock.lock().with_context(|| format!("cannot lock {}", lock_path.display()))?;

    let toolchain = Toolchain::choose(&TARGET)?;
    let key = inputs::key(package, TARGET.triple, [toolchain.version()?, LINKER_ARGUMENTS.join(" ")])?;
    let stamp = path.with_extension("key");
    if path.is_file() && fs::read_to_string(&stamp).is_ok_and(|stamped| stamped == key) {
        return Ok(path);
    }
    let _part = timing::begin(&format!("build the component {name}"));
    let module = compile(package, toolchain)?;
    let bytes = workspace::read(&module)?;
    let component = encode::component(&bytes)
        .with_context(|| format!("{} does not make a component of the contract", module.display()))?;
    // A stamp must never be beside a component that it does not describe.
    let _ = fs::remove_file(&stamp);
    workspace::replace(&path, &component)?;
    workspace::replace(&stamp, key.as_bytes())?;
    Ok(path)
}

/// Compiles a package to a core module and returns the module's path.
fn compile(package: &str, toolchain: Toolchain) -> Result<PathBuf> {
    // A folder of its own: another compiler's artefacts would keep evicting the workspace's.
    let target = workspace::target_folder()?.join("component-build");
    let mut command = Command::new(toolchain.cargo());
    // The crate type is given here: cargo skips LTO if the manifest's rlib is built too.
    command.args(["rustc", "--package", package, "--lib", "--crate-type", "cdylib"]);
    command.args(["--profile", "component", "--target-dir"]).arg(&target);
    toolchain.compile(&mut command, &TARGET);
    if matches!(toolchain, Toolchain::Debian) {
        // Debian's packages contain no linker for WebAssembly.
        command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", toolchain::lld()?);
    }
    let linker = LINKER_ARGUMENTS.iter().map(|argument| format!("-Clink-arg={argument}"));
    let flags: Vec<_> = linker.chain([workspace::path_flag()?]).collect();
    process::run(command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}")))?;
    Ok(target.join(TARGET.triple).join("component").join(format!("{}.wasm", package.replace('-', "_"))))
}
