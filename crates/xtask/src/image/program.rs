//! The program of an image. It is static, since the image contains no libraries.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::oci::Platform;
use crate::toolchain::{Target, Toolchain};
use crate::{process, tools, workspace};

/// The package and its program.
pub(super) const NAME: &str = "bindery";

/// The program for a platform, and what compiled it.
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// The target that it was compiled for.
    pub(super) target: &'static str,
    pub(super) toolchain: Toolchain,
    /// The folder of Zig, if Zig brought the C library and linked.
    pub(super) zig: Option<PathBuf>,
}

/// The target of a platform's program.
///
/// This machine's own platform gets glibc, whose allocator is much faster among many threads than musl's. For
/// other platforms Zig brings the C library, which is musl.
fn target(platform: Platform) -> Target {
    let triple = match (platform, Platform::here() == Some(platform)) {
        (Platform::Amd64, true) => "x86_64-unknown-linux-gnu",
        (Platform::Amd64, false) => "x86_64-unknown-linux-musl",
        (Platform::Arm64, true) => "aarch64-unknown-linux-gnu",
        (Platform::Arm64, false) => "aarch64-unknown-linux-musl",
    };
    Target { triple, standard_library: "std,panic_unwind" }
}

/// Compiles the program.
///
/// All platforms share one target folder, so that macros and build scripts are compiled once. It is not the
/// workspace's folder: other compilers and flags would keep evicting the workspace's artefacts.
pub(super) fn build(platform: Platform, profile: &str) -> Result<Program> {
    let target = target(platform);
    let folder = workspace::target_folder()?.join("image-build");
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
        // Debian's Rust has no objects to link by itself; Zig has them.
        (toolchain, Some(zig), command, "-Clink-self-contained=no")
    };
    toolchain.compile(&mut command, &target);
    // An image holds a server: no playground.
    command.args(["--package", NAME, "--bin", NAME, "--no-default-features"]);
    command.args(["--locked", "--profile", profile]);
    command.arg("--target-dir").arg(&folder);
    // Build scripts write code into the target folder, and its path would end up in the program.
    let flags = [flag, &workspace::path_flag()?, &workspace::renaming_flag(&folder, "/target")];
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    process::run(&mut command)?;
    let path = folder.join(target.triple).join(profile).join(NAME);
    Ok(Program { path, target: target.triple, toolchain, zig })
}
