//! Programs from the registry of npm: one of them makes components of JavaScript.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::debian;
use crate::{process, workspace};

/// What pins the packages, with the digest of each.
const PINS: [&str; 2] = ["package.json", "package-lock.json"];

/// Installs the packages that a folder of the workspace pins into a folder of the cache, once; they are in
/// `node_modules` there.
pub(super) fn install(name: &str, folder: &Path) -> Result<PathBuf> {
    let pins = PINS.map(|file| workspace::root().join(folder).join(file));
    let key = workspace::content_key([workspace::read(&pins[0])?, workspace::read(&pins[1])?]);
    let tools = workspace::cache_folder()?.join("tools");
    let folder = tools.join(format!("{name}-{}", &key[..12]));
    workspace::folder_once(&folder, |unfinished| {
        if !process::exists("npm", "--version")? {
            debian::install(&["nodejs", "npm"], "policies in JavaScript need Node.js 20 and npm")?;
        }
        eprintln!("installing {name} once, into {}", tools.display());
        for (file, pin) in PINS.iter().zip(&pins) {
            fs::copy(pin, unfinished.join(file)).with_context(|| format!("cannot copy {}", pin.display()))?;
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund"]).current_dir(unfinished);
        process::run(npm.stdout(std::io::stderr()))
    })?;
    Ok(folder)
}
