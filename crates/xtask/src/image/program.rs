//! The program of an image: static, since an image has nothing but the program.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::Result;

use super::compiled;
use crate::oci::Platform;
use crate::toolchain::{Target, Toolchain};
use crate::{process, tools, workspace};

/// The package and its program.
pub(super) const NAME: &str = "bindery";

/// The program of a platform, and what compiled it.
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// The packages that it was compiled of, by cargo's ids.
    pub(super) packages: BTreeSet<String>,
    pub(super) toolchain: Toolchain,
    /// The folder of Zig, where it brought the C library and linked.
    pub(super) zig: Option<PathBuf>,
}

/// The target of a platform's program.
///
/// This machine's own platform gets glibc, whose allocator is much faster among many threads than musl's; for
/// others Zig brings a C library, and that is musl.
fn target(platform: Platform) -> Target {
    let triple = match (platform, Platform::here() == Some(platform)) {
        (Platform::Amd64, true) => "x86_64-unknown-linux-gnu",
        (Platform::Amd64, false) => "x86_64-unknown-linux-musl",
        (Platform::Arm64, true) => "aarch64-unknown-linux-gnu",
        (Platform::Arm64, false) => "aarch64-unknown-linux-musl",
    };
    Target { triple, standard_library: "std,panic_unwind" }
}

/// Compiles the program for some platforms, side by side: of each some crates are compiled alone for a
/// minute, and would leave the other processors idle.
///
/// # Errors
/// As [`build`].
pub(super) fn build_all(platforms: &[Platform], profile: &str) -> Result<Vec<Program>> {
    thread::scope(|scope| {
        let builds: Vec<_> =
            platforms.iter().map(|&platform| scope.spawn(move || build(platform, profile))).collect();
        builds.into_iter().map(|build| build.join().expect("no build panics")).collect()
    })
}

/// Compiles the program.
///
/// # Errors
/// When there is no toolchain for the platform (the error says what to install), or the program does not
/// compile.
fn build(platform: Platform, profile: &str) -> Result<Program> {
    let target = target(platform);
    // A folder of its own: other compilers and flags would keep evicting the workspace's artefacts, and two
    // cargos in one folder wait for each other.
    let folder = workspace::target_folder()?.join(format!("image-build-{}", platform.name()));
    let (toolchain, zig, mut command, flag) = if Platform::here() == Some(platform) {
        let toolchain = Toolchain::Active;
        let mut command = Command::new(toolchain.cargo());
        command.arg("build");
        (toolchain, None, command, "-Ctarget-feature=+crt-static")
    } else {
        let toolchain = Toolchain::choose(&target)?;
        let tool = tools::zigbuild()?;
        let zig = tool.join("ziglang");
        let mut command = Command::new(tool.join("bin/cargo-zigbuild"));
        command.arg("zigbuild").env("CARGO_ZIGBUILD_ZIG_PATH", zig.join("zig"));
        // What Debian's Rust lacks, and Zig has.
        (toolchain, Some(zig), command, "-Clink-self-contained=no")
    };
    toolchain.compile(&mut command, &target);
    // An image holds a server: no playground.
    command.args([
        "--package",
        NAME,
        "--bin",
        NAME,
        "--no-default-features",
        "--locked",
        "--profile",
        profile,
    ]);
    command.arg("--target-dir").arg(&folder);
    // Some dependencies are compiled of what their build scripts wrote there.
    let flags = [flag, &workspace::path_flag()?, &workspace::renaming_flag(&folder, "/target")];
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    command.arg("--message-format=json-render-diagnostics");
    let printed = process::output(&mut command)?;
    let folder = folder.join(target.triple);
    let packages = compiled::packages(&printed, &folder)?;
    Ok(Program { path: folder.join(profile).join(NAME), packages, toolchain, zig })
}
