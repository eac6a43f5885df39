//! The checkout, cargo's target folder and the tools cache.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::process;

/// The root of the checkout that this program works on: that of the package that cargo runs, or, without
/// cargo, the one that this program was built in.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let is_ours = |folder: &PathBuf| folder.ends_with("crates/xtask");
        let root = package.filter(is_ours).and_then(|package| Some(package.ancestors().nth(2)?.to_owned()));
        root.or_else(|| option_env!("BINDERY_CHECKOUT").map(PathBuf::from))
            .expect("cargo runs xtask, or built it within the checkout")
    })
}

/// The cargo that runs us, or the one on the path.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The output of `cargo metadata` for the workspace and all its dependencies.
pub(crate) fn metadata() -> Result<&'static Value> {
    static METADATA: OnceLock<Value> = OnceLock::new();
    if let Some(metadata) = METADATA.get() {
        return Ok(metadata);
    }
    let printed = process::output(cargo().args(["metadata", "--format-version", "1"]))?;
    let metadata = serde_json::from_str(&printed).context("the output of cargo metadata is not JSON")?;
    Ok(METADATA.get_or_init(|| metadata))
}

/// Cargo's target folder (`CARGO_TARGET_DIR`, its configuration, or `target`).
pub(crate) fn target_folder() -> Result<PathBuf> {
    let folder =
        metadata()?["target_directory"].as_str().context("cargo metadata names no target_directory")?;
    Ok(PathBuf::from(folder))
}

/// The cache that all checkouts share: `BINDERY_CACHE`, else `bindery` in the user's cache folder.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("BINDERY_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("bindery")))
        .or_else(|| set("HOME").map(|folder| folder.join(".cache/bindery")))
        .context("no place for the tools cache: set BINDERY_CACHE to a folder")
}

/// The content of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A hidden name that only this process uses, in the same folder and so on the same file system.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().expect("the path must end in a name"));
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

/// Makes a folder that is complete once it exists: `fill` writes into one beside it, which is then renamed.
/// Does nothing if the folder exists.
pub(crate) fn folder_once(folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let unfinished = beside(folder);
    fs::create_dir_all(&unfinished).with_context(|| format!("cannot create {}", unfinished.display()))?;
    fill(&unfinished)?;
    if let Err(error) = fs::rename(&unfinished, folder) {
        fs::remove_dir_all(&unfinished)?;
        // Another process may have been faster.
        if !folder.is_dir() {
            return Err(error).with_context(|| format!("cannot create {}", folder.display()));
        }
    }
    Ok(())
}

/// Writes a file in one step, in place of an old one if there is one.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let unfinished = beside(path);
    fs::write(&unfinished, content)
        .and_then(|()| fs::rename(&unfinished, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The compiler's flag that keeps cargo's folder on this machine out of what it makes, so that the digest is
/// the same elsewhere.
///
/// The checkout's path needs no flag: cargo passes paths within the checkout, and published programs have no
/// debug information.
pub(crate) fn path_flag() -> Result<String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let home = home.context("neither CARGO_HOME nor HOME is set, so cargo's folder is unknown")?;
    Ok(renaming_flag(&home, "/cargo"))
}

/// The compiler's flag that renames a folder in what it makes. If several flags match, the last one wins.
///
/// Cargo ignores these flags when it derives names of symbols and folders.
pub(crate) fn renaming_flag(folder: &Path, name: &str) -> String {
    format!("--remap-path-prefix={}={name}", folder.display())
}

/// A content key: SHA-256 over the parts, each preceded by its length, in hexadecimal.
pub(crate) fn content_key<Part: AsRef<[u8]>>(parts: impl IntoIterator<Item = Part>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        let part = part.as_ref();
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    format!("{:x}", hasher.finalize())
}

/// The SHA-256 of some bytes in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_key_depends_on_the_boundaries_of_its_parts() {
        assert_ne!(content_key(["ab", "c"]), content_key(["a", "bc"]));
        assert_eq!(content_key(["ab", "c"]), content_key(["ab", "c"]));
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
