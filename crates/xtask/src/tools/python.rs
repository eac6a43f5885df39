//! Programs from the Python Package Index, which carries wheels with compiled programs that have no other package.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::debian;
use crate::{process, workspace};

/// Installs what a requirements file below `tools/` names, each by its version and digest, into a folder of the cache, once.
///
/// # Errors
/// When Python is missing and cannot be installed, or when a package cannot be fetched or is not what the file says.
pub(super) fn install(name: &str) -> Result<PathBuf> {
    let requirements = workspace::root().join("tools").join(name).join("requirements.txt");
    let content =
        fs::read(&requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
    let tools = workspace::cache_folder()?.join("tools");
    let folder = tools.join(format!("{name}-{}", &workspace::content_key([content])[..12]));
    if !folder.is_dir() {
        if !process::exists("python3", "--version")? {
            debian::install(&["python3-pip"], "packages of Python need pip")?;
        }
        eprintln!("installing {name}, once; it is kept in {}", tools.display());
        let unfinished = folder.with_extension(std::process::id().to_string());
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps", "--target"]);
        pip.arg(&unfinished).arg("--requirement").arg(&requirements);
        process::run(pip.env("PIP_ROOT_USER_ACTION", "ignore").stdout(std::io::stderr()))?;
        if let Err(error) = fs::rename(&unfinished, &folder) {
            fs::remove_dir_all(&unfinished)?;
            // Another process may have been faster.
            anyhow::ensure!(folder.is_dir(), "cannot put {name} at {}: {error}", folder.display());
        }
    }
    Ok(folder)
}
