//! Tools from crates.io, built with the dependencies that their own lock file names.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::{process, workspace};

/// The program of a crate, which has the same name.
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: &'static str,
}

impl Package {
    /// Names what is built, such as `cargo-deny-0.20.2`.
    pub(super) fn key(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// Builds the program to `program`. It runs for seconds, so a fast build matters more than a fast
    /// program.
    pub(super) fn build(&self, program: &Path) -> Result<()> {
        let folder = program.with_extension("build");
        let mut command = workspace::cargo();
        command.args(["install", "--quiet", "--locked", "--version", self.version, "--root"]).arg(&folder);
        command.arg("--target-dir").arg(folder.join("target")).arg(&self.name);
        command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1").env("CARGO_PROFILE_RELEASE_LTO", "off");
        command.env("CARGO_PROFILE_RELEASE_DEBUG", "false").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        process::run(&mut command)?;
        let built = folder.join("bin").join(&self.name);
        fs::rename(&built, program)
            .with_context(|| format!("cannot find {} where cargo put it", built.display()))?;
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))
    }
}
